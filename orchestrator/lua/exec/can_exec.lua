-- flags: allow-oom
-- needs: evidence
-- can_exec tells whether the adapter of a run starts processes for it.
-- ARGV: task, run, secret, presented token
-- Reply: 1 or 0
-- Errors: lease_expired, task_mismatch, stale_fence, unknown_fence
local r, err = authenticate_run(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if err then return err end
return r.exec == '1' and 1 or 0
