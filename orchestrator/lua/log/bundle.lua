-- flags: allow-oom
-- bundle describes the bundle of a task's branch that the server keeps.
-- alone
-- ARGV: task
-- Reply: sha, size, count, run, token, branch, base, tip, at
-- Errors: not_found
if not call('HGET', K('task:', ARGV[1]), 'state') then return refuse('not_found', 'kind', 'task') end
local b = pick(K('bundle:', ARGV[1]), 'sha', 'size', 'count', 'run', 'token', 'branch', 'base', 'tip', 'at')
if not b.sha then return refuse('not_found', 'kind', 'bundle') end
return named{ sha = b.sha, size = b.size, count = b.count, run = b.run, token = b.token, branch = b.branch,
  base = b.base, tip = b.tip, at = b.at }
