-- emit_refused writes one event about count refused writes of a run; last is
-- what the latest of them was: verb, code, presented, current.
local function emit_refused(rid, last, count)
  local of = call('HMGET', K('run:', rid), 'task', 'token', 'agent')
  emit('write.refused', { task = of[1] or '', run = rid, agent = of[3], actor = rid, token = of[2] or '0' },
    '{"code":' .. quote(last[2]) .. ',"verb":' .. quote(last[1]) .. ',"presented":' .. last[3] ..
    ',"current":' .. last[4] .. ',"count":' .. F(count) .. '}')
  count_activity('refused:' .. last[2], count)
end

-- count_refused counts refused writes of a run. The first calls of a minute, up
-- to most, each write an event; the others are told together when the minute is
-- over. It returns 1 when an event was written, else 0.
local MINUTE = 60000
local function count_refused(rid, last, count, most)
  local key = K('refused:', rid)
  local minute = F(math.floor(now / MINUTE))
  local was = call('HMGET', key, 'minute', 'n', 'more')
  local n, more = num(was[2]), num(was[3])
  if was[1] ~= minute then n = 0 end -- what was only counted is told by its chore
  if n < most then
    call('HSET', key, 'minute', minute, 'n', F(n + 1))
    call('PEXPIRE', key, 60 * MINUTE)
    emit_refused(rid, last, count)
    return 1
  end
  call('HSET', key, 'more', F(more + count), 'verb', last[1], 'code', last[2], 'presented', last[3], 'current', last[4])
  call('ZADD', K('chores'), F((num(minute) + 1) * MINUTE), 'refused:' .. rid)
  return 0
end
