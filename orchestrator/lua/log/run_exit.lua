-- flags: allow-oom
-- needs: eventbudget evidence queue refused
-- run_exit notes how a run's process ended. The class was set when the lease
-- ended and stays; a task waiting for this process goes on at once. Another exit
-- of the same run takes its event from the run's budget, as long as nobody has
-- decided about the task.
-- ARGV: task, run, secret, presented token, class, code or '', signal or '', duration ms or '',
--   containment, detail, last event ('' | none | =id)
-- Reply: OK
-- Errors: lease_expired, task_mismatch, stale_fence, unknown_fence, task_closed (it was decided)
local tid, rid = ARGV[1], ARGV[2]
local r, err = authenticate_run(tid, rid, ARGV[3], ARGV[4])
if err then return err end
if r.exited == '1' and r.code == ARGV[6] and r.signal == ARGV[7] then return 'OK' end -- @same-exit
local decided = r.exited == '1' and decided_state(tid)
if decided then return refuse('task_closed', 'kind', 'exit', 'state', decided) end -- @no-late-exit
if r.exited == '1' and not take_event(r) then
  count_refused(rid, { 'exit', 'quota_exceeded', r.token, r.token }, 1, 1)
  return 'OK'
end
record_exit(rid, r, ARGV[11])
put(r, 'exits', F(num(r.exits) + 1), 'code', ARGV[6], 'signal', ARGV[7], 'duration', ARGV[8], 'containment', ARGV[9])
if ARGV[10] ~= '' then call('SET', K('detail:', rid), ARGV[10], 'NX') end
requeue_after_process(rid) -- @frees-after-exit
emit('run.exited', { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid },
  '{"class":' .. quote(ARGV[5]) .. ',"code":' .. (ARGV[6] == '' and 'null' or ARGV[6]) ..
  ',"signal":' .. (ARGV[7] == '' and 'null' or quote(ARGV[7])) .. '}')
return 'OK'
