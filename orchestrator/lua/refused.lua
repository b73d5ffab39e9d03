-- flags: allow-oom
-- refused writes a refused write into the log: each of the first 20 of a run
-- and minute, and the number of the others with the next minute's first.
-- ARGV: task, run, verb, code, presented, current
-- Reply: 1 when an event was written, else 0
local tid, rid = ARGV[1], ARGV[2]
local key = K('refused:', rid)
local minute = F(math.floor(raw / 60000))
local was = call('HMGET', key, 'minute', 'n', 'more')
local n, more = num(was[2]), num(was[3])
local e = { task = tid, run = rid, actor = rid, token = ARGV[5] }
local function body(count)
  return '{"code":' .. quote(ARGV[4]) .. ',"verb":' .. quote(ARGV[3]) .. ',"presented":' .. ARGV[5] ..
      ',"current":' .. ARGV[6] .. ',"count":' .. F(count) .. '}'
end
if was[1] ~= minute then
  call('HSET', key, 'minute', minute, 'n', '1', 'more', '0')
  call('PEXPIRE', key, 3600000)
  emit('write.refused', e, body(1 + more))
  return 1
end
if n < 20 then
  call('HSET', key, 'n', F(n + 1))
  emit('write.refused', e, body(1))
  return 1
end
call('HSET', key, 'more', F(more + 1))
return 0
