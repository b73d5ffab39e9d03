-- flags: allow-oom
-- needs: conflicts tree view
-- cancel ends a task permanently, in any open state, with all that is below it.
-- alone
-- ARGV: task or its open hand-off, actor, request key, body hash, reason
-- Reply: view of the task
-- Errors: not_found, task_closed, state_conflict (a decided hand-off), idempotency_conflict
local tid, by, key, body, reason = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if string.sub(tid, 1, 8) == 'handoff_' then
  local h = load(K('handoff:', tid))
  if not h then return refuse('not_found', 'kind', 'hand-off') end
  local was, err = find_request(key, body)
  if err then return err end
  if not was and h.state ~= 'open' then return refuse_closed_handoff(h, load(K('task:', h.task))) end
  tid = h.task
end
local was, err = find_request(key, body)
if err then return err end
if was then return task_view(tid, false, 0) end
local t = load(K('task:', tid))
if not t then return refuse('not_found', 'kind', 'task') end
if TERMINAL[t.state] then return refuse_closed_task(tid, t) end
cancel_tree(tid, t, by, reason)
remember(key, body, tid, DAY)
return task_view(tid, false, 0)
