-- flags: allow-oom
-- needs: queue view
-- explain gathers why a task is where it is.
-- alone
-- ARGV: task
-- Reply: task (a task_view), tick (last tick, ms), delayed (score), lane, ahead (better tasks in the lane),
--   kept_for (answer or retry, of a task that is kept for an agent), paused, call (tool, ends: the call that it
--   waits for), cancelled_with (the task above), waiters
-- Errors: not_found
local t = load(K('task:', ARGV[1]))
if not t then return refuse('not_found', 'kind', 'task') end
local function waits_for_call(id)
  local ends, owner = awaited_calls_until(id, t)
  if ends <= now then return nil end
  local cid = call('ZRANGE', K('inflight:', owner), -1, -1)[1]
  return named{ tool = call('HGET', K('hold:', owner .. ':' .. cid), 'tool') or cid, ends = ends }
end

local lane = t.at ~= '' and t.at or t.lane
return named{
  task = task_view(ARGV[1]), tick = call('HGET', META, 'tick'), delayed = call('ZSCORE', K('delayed'), ARGV[1]),
  lane = lane, kept_for = t.pin_for, ahead = call('ZRANK', K('lane:', lane), ARGV[1]), paused = paused,
  call = waits_for_call(ARGV[1]),
  cancelled_with = cancelled_ancestor(t),
  waiters = call('ZRANGEBYSCORE', K('waiters'), NOW, '+inf', 'LIMIT', 0, 1000),
}
