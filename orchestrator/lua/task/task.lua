-- flags: allow-oom
-- needs: view
-- task shows the whole of a task.
-- alone
-- ARGV: task, how many of its first emissions the reader knows
-- Reply: view of the task
-- Errors: not_found
return task_view(ARGV[1], false, ARGV[2])
