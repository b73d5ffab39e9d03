-- tell_refused writes one event about count refused writes of a run; last is
-- what the latest of them was: verb, code, presented, current.
local function tell_refused(rid, last, count)
  local of = call('HMGET', K('run:', rid), 'task', 'token', 'agent')
  emit('write.refused', { task = of[1] or '', run = rid, agent = of[3], actor = rid, token = of[2] or '0' },
    '{"code":' .. quote(last[2]) .. ',"verb":' .. quote(last[1]) .. ',"presented":' .. last[3] ..
    ',"current":' .. last[4] .. ',"count":' .. F(count) .. '}')
  beat('refused:' .. last[2], count)
end
