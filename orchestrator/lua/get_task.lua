-- flags: allow-oom
-- needs: fence view
-- get_task shows the holder of a lease its task.
-- ARGV: task, run, secret, presented token
-- Reply: view of the task
-- Errors: those of fenced
local t, r, deadline, err = fenced(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if err then return err end
confirm(ARGV[1], r, deadline)
return view(ARGV[1])
