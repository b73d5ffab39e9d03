-- flags: allow-oom
-- needs: queue view
-- explain gathers why a task is where it is.
-- ARGV: task
-- Reply: {view, last tick ms or '', delayed score or '', lane, better tasks in
--   the lane, now ms, raw ms, pause, call that it waits for {tool, until ms} or {},
--   the task above that it was cancelled with or '', waiter...}
-- Errors: not_found
local t = load(K('task:', ARGV[1]))
if not t then return refuse('not_found', 'kind', 'task') end
local function waits_for_call(id)
  local ends, owner = awaited_calls_until(id, t)
  if ends <= now then return {} end
  local cid = call('ZRANGE', K('inflight:', owner), -1, -1)[1]
  return { call('HGET', K('hold:', owner .. ':' .. cid), 'tool') or cid, ends }
end

local lane = t.at ~= '' and t.at or t.lane
local out = { task_view(ARGV[1]), call('HGET', META, 'tick') or '', call('ZSCORE', K('delayed'), ARGV[1]) or '', lane,
  call('ZRANK', K('lane:', lane), ARGV[1]) or 0, NOW, RAW, paused, waits_for_call(ARGV[1]),
  cancelled_ancestor(t) or '' }
for _, w in ipairs(call('ZRANGEBYSCORE', K('waiters'), NOW, '+inf', 'LIMIT', 0, 1000)) do out[#out + 1] = w end
return out
