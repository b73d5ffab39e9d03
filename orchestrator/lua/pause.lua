-- flags: allow-oom
-- needs: queue end
-- pause presses the stop button: no grants from now on; hard also ends runs,
-- up to a batch here and the rest as a chore.
-- ARGV: mode (press | chore), actor, hard 0|1, reason, limit, request key, body hash
-- Reply: press: {paused, hard, reason, by, at}; chore: number of runs ended
-- Errors: idempotency_conflict
local function stop_runs(actor, limit)
  local live = call('ZRANGE', K('deadlines'), 0, limit - 1)
  for _, tid in ipairs(live) do
    local t = load(K('task:', tid))
    local r = call('HMGET', K('run:', t.run), 'agent', 'token')
    end_lease(tid, t.run, 'released', 'released')
    local state, failures = after(tid, t, t.run, 'released', true)
    emit('lease.released', { task = tid, run = t.run, agent = r[1], token = r[2], actor = actor, reason = 'paused' },
      '{"state":' .. quote(state) .. ',"failures":' .. F(failures) ..
      ',"reason":"paused","exit":{"class":"released","code":null,"signal":null}}')
  end
  if #live < limit then call('ZREM', K('chores'), 'pause') end
  return #live
end

local mode, actor, limit = ARGV[1], ARGV[2], num(ARGV[5])
if mode == 'chore' then
  if not call('ZSCORE', K('chores'), 'pause') then return 0 end
  return stop_runs(actor, limit)
end
local was, err = once(ARGV[6], ARGV[7])
if err then return err end
if not was then
  call('HSET', META, 'paused', ARGV[3] == '1' and 'hard' or 'soft', 'paused_by', actor, 'paused_why', ARGV[4], 'paused_at', F(raw))
  emit('namespace.paused', { actor = actor }, '{"hard":' .. (ARGV[3] == '1' and 'true' or 'false') .. ',"reason":' .. quote(ARGV[4]) .. '}')
  if ARGV[3] == '1' then
    call('ZADD', K('chores'), F(now), 'pause')
    stop_runs(actor, limit)
  end
  remember(ARGV[6], ARGV[7], 'done', DAY)
end
return call('HMGET', META, 'paused', 'paused_why', 'paused_by', 'paused_at')
