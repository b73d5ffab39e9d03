-- flags: allow-oom
-- needs: conflicts expire view
-- expire takes a lease away by an operator's decision.
-- ARGV: task, actor, request key, body hash, reason, the run that is meant or '' for whichever it is
-- Reply: view of the task
-- Errors: not_found, task_closed, state_conflict, idempotency_conflict
local tid, by, key, body = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local was, err = find_request(key, body)
if err then return err end
if was then return task_view(tid, false, 0) end
local t = load(K('task:', tid))
if not t then return refuse('not_found', 'kind', 'task') end
if TERMINAL[t.state] then return refuse_closed_task(tid, t) end
if t.state ~= 'leased' then return refuse('state_conflict.wrong_state', 'state', t.state, 'need', 'leased') end
if ARGV[6] ~= '' and ARGV[6] ~= t.run then
  return refuse('state_conflict.other_run', 'state', t.state, 'meant', ARGV[6], 'current', t.run)
end
expire_lease(tid, t, 'expired_by_operator', ARGV[5] ~= '' and ARGV[5] or 'expired_by_operator', by)
remember(key, body, tid, DAY)
return task_view(tid, false, 0)
