-- flags: allow-oom
-- needs: fence toolcalls unread view
-- reads: task 1, run 2, deadlines 1
-- await shows a run what has become of a subtask of its task.
-- alone
-- ARGV: task, run, secret, presented token, subtask, which look of a call this
--   is: only, first or again; ms that the call waits from now on
-- Reply: task (a task_view of the subtask), nudge (JSON or ''), unread; or {} when this call ended the run
-- Errors: those of fenced; not_found (no subtask of this task)
local tid, rid, id = ARGV[1], ARGV[2], ARGV[5]
local t, r, deadline, err = fenced(tid, rid, ARGV[3], ARGV[4])
if err then return err end
local c = pick(K('task:', id), 'parent', 'state')
if c.parent ~= tid then return refuse('not_found', 'kind', 'subtask') end -- @own-subtask
deadline = confirm_lease(tid, r, deadline)
local settled = TERMINAL[c.state] or c.state == 'review' or c.state == 'handoff'
local nudge = note_wait_call(tid, rid, t, r, deadline, 'await_subtask ' .. id .. ' ' .. c.state,
  'await_subtask ' .. id, ARGV[6], settled, num(ARGV[7]))
if not nudge then return {} end
return named{ task = task_view(id), nudge = nudge, unread = unread_of(tid, r) }
