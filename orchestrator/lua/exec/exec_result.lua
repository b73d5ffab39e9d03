-- needs: evidence
-- exec_result keeps what became of a process that a call has asked for, and
-- wakes that call. The first result counts; the same call again changes nothing.
-- ARGV: task, run, secret, presented token, call id, result JSON
-- Reply: OK
-- Errors: lease_expired, task_mismatch, stale_fence, unknown_fence, state_conflict (nobody waits for it)
local tid, rid, id = ARGV[1], ARGV[2], ARGV[5]
local r, err = authenticate_run(tid, rid, ARGV[3], ARGV[4])
if err then return err end
local kept = K('exec-result:', rid .. ':' .. id)
if call('EXISTS', kept) == 1 then return 'OK' end
local key = K('exec:', rid)
local order = call('HGET', key, id)
if not order or now >= num(string.match(order, '^%d+')) then
  return refuse('state_conflict.exec_over', 'cause', 'exec_over')
end
call('HDEL', key, id)
put(r, 'execs', F(call('HLEN', key)))
call('SET', kept, ARGV[6], 'PX', F(EVIDENCE_WINDOW))
wake('exec ' .. rid .. ':' .. id)
return 'OK'
