-- flags: allow-oom
-- needs: evidence
-- await_exec looks for the result of a process that a call has asked for.
-- ARGV: task, run, secret, presented token, call id
-- Reply: result (JSON) once there is one, else left (ms to the call's deadline, 0 when there will be none)
-- Errors: lease_expired, task_mismatch, stale_fence, unknown_fence
local rid, id = ARGV[2], ARGV[5]
local r, err = authenticate_run(ARGV[1], rid, ARGV[3], ARGV[4])
if err then return err end
local result = call('GET', K('exec-result:', rid .. ':' .. id))
if result then return named{ result = result } end
local order = call('HGET', K('exec:', rid), id)
return named{ left = F(math.max(num(order and string.match(order, '^%d+')) - now, 0)) }
