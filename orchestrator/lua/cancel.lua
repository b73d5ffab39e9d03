-- flags: allow-oom
-- needs: money stray lane queue agent end handoff tree view
-- cancel ends a task for good, whatever it is doing, with all that is below it.
-- ARGV: task or its open hand-off, actor, request key, body hash, reason
-- Reply: view of the task
-- Errors: not_found, task_closed, state_conflict (a decided hand-off), idempotency_conflict
local tid, by, key, body, reason = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if string.sub(tid, 1, 8) == 'handoff_' then
  local of = call('HMGET', K('handoff:', tid), 'task', 'state', 'by')
  if not of[1] then return refuse('not_found', 'kind', 'hand-off') end
  local was, err = once(key, body)
  if err then return err end
  if not was and of[2] ~= 'open' and not TERMINAL[call('HGET', K('task:', of[1]), 'state')] then
    return refuse('state_conflict', 'state', of[2], 'need', 'open', 'by', of[3] or '-')
  end
  tid = of[1]
end
local was, err = once(key, body)
if err then return err end
if was then return view(tid) end
local t = load(K('task:', tid))
if not t then return refuse('not_found', 'kind', 'task') end
if TERMINAL[t.state] then return refuse('task_closed', 'state', t.state) end
cancel_tree(tid, t, by, reason)
remember(key, body, tid, DAY)
return view(tid)
