-- flags: allow-oom
-- needs: fence message toolcalls unread view
-- reads: task 1, run 2, deadlines 1
-- get_task shows the holder of a lease its task, with the input that a person
-- has edited.
-- alone
-- ARGV: task, run, secret, presented token, request id or '', the
--   call in words
-- Reply: task (a task_view), nudge (JSON or ''), unread, messages (message_row); or {} when this call ended the run
-- Errors: those of fenced
local t, r, deadline, err = fenced(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if err then return err end
deadline = confirm_lease(ARGV[1], r, deadline)
local nudge = note_tool_call(ARGV[1], ARGV[2], t, r, deadline, 'get_task', ARGV[6], '', ARGV[5], true)
if not nudge then return {} end
return named{ task = task_view(ARGV[1], call('GET', K('edit:', ARGV[1]))), nudge = nudge,
  unread = unread_of(ARGV[1], r), messages = recent_messages(ARGV[1]) } -- @shows-edit
