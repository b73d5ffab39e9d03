-- flags: allow-oom
-- needs: stray lane queue evidence
-- run_exit notes how a run's process ended. The class was set when the lease
-- ended and stays; a task waiting for this process goes on at once.
-- ARGV: task, run, secret, presented token, class, code or '', signal or '', duration ms or '',
--   containment, detail
-- Reply: OK
-- Errors: lease_expired, task_mismatch, stale_fence, unknown_fence
local tid, rid = ARGV[1], ARGV[2]
local r, err = witness(tid, rid, ARGV[3], ARGV[4])
if err then return err end
if r.exited == '1' and r.code == ARGV[6] and r.signal == ARGV[7] then return 'OK' end
put(r, 'exited', '1', 'code', ARGV[6], 'signal', ARGV[7], 'duration', ARGV[8], 'containment', ARGV[9])
if ARGV[10] ~= '' then call('SET', K('detail:', rid), ARGV[10], 'NX') end
open_gate(rid)
emit('run.exited', { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid },
  '{"class":' .. quote(ARGV[5]) .. ',"code":' .. (ARGV[6] == '' and 'null' or ARGV[6]) ..
  ',"signal":' .. (ARGV[7] == '' and 'null' or quote(ARGV[7])) .. '}')
return 'OK'
