-- flags: allow-oom
-- needs: view
-- task shows the whole of a task.
-- ARGV: task
-- Reply: view of the task
-- Errors: not_found
return task_view(ARGV[1])
