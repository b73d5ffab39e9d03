-- flags: allow-oom
-- needs: view
-- explain gathers why a task is where it is.
-- ARGV: task
-- Reply: {view, last tick ms or '', delayed score or '', lane, better tasks in
--   the lane, waiter...}
-- Errors: not_found
local t = load(K('task:', ARGV[1]))
if not t then return refuse('not_found', 'kind', 'task') end
local lane = t.at ~= '' and t.at or t.lane
local out = { view(ARGV[1]), call('HGET', META, 'tick') or '', call('ZSCORE', K('delayed'), ARGV[1]) or '', lane,
  call('ZRANK', K('lane:', lane), ARGV[1]) or 0, NOW, RAW, paused }
for _, w in ipairs(call('ZRANGEBYSCORE', K('waiters'), NOW, '+inf', 'LIMIT', 0, 1000)) do out[#out + 1] = w end
return out
