-- flags: allow-oom
-- refused writes a refused write into the log: each of the first 20 of a run
-- and minute, and the number of the others with the next minute's first.
-- The event belongs to the run's own task, whatever task was presented; that
-- of a run which is not known any more belongs to none.
-- ARGV: run, verb, code, presented or 0, current or 0
-- Reply: 1 when an event was written, else 0
local rid, verb, code = ARGV[1], ARGV[2], ARGV[3]
local of = call('HMGET', K('run:', rid), 'task', 'token', 'agent')
local tid = of[1] or ''
local mine = of[2] or '0'
local presented = ARGV[4] ~= '0' and ARGV[4] or mine
local current = ARGV[5]
if current == '0' then current = call('HGET', K('task:', tid), 'token') or '0' end
local key = K('refused:', rid)
local minute = F(math.floor(raw / 60000))
local was = call('HMGET', key, 'minute', 'n', 'more')
local n, more = num(was[2]), num(was[3])
local e = { task = tid, run = rid, agent = of[3], actor = rid, token = mine }
local function body(count)
  return '{"code":' .. quote(code) .. ',"verb":' .. quote(verb) .. ',"presented":' .. presented ..
      ',"current":' .. current .. ',"count":' .. F(count) .. '}'
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
