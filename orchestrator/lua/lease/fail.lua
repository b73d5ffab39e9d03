-- flags: allow-oom
-- needs: close_task end_lease facts fence retry_policy tree
-- reads: task 1, run 2, deadlines 1
-- fail is the agent's own word that it cannot do the task, or will not: then the task has failed, whatever its retry
-- policy is. A repeat gets the same answer.
-- ARGV: task, run, secret, presented token, content hash, reason, retryable 0|1, class: agent_failed or rejected
-- Reply: state
-- Errors: those of fenced
local tid, rid = ARGV[1], ARGV[2]
local t, r, deadline, err = fenced(tid, rid, ARGV[3], ARGV[4])
if err then return repeated_answer(tid, rid, ARGV[3], 'fail', ARGV[5]) or err end
local class = ARGV[8]
end_lease(tid, rid, 'failed', class, confirmed_deadline(r, deadline)) -- @class-of-failure
call('SET', K('detail:', rid), ARGV[6])
local state, failures, facts
if class == 'rejected' then -- @rejects-at-once
  state, failures, facts = 'failed', num(pick(t[1], 'failures').failures), task_facts(tid)
  close_task(tid, t, 'failed', 'reason', ARGV[6]) -- @tells-rejection
else
  state, failures, facts = apply_retry_policy(tid, t, rid, class, ARGV[7] == '1')
end
put(r, 'closed', 'fail:' .. ARGV[5] .. ' ' .. state)
emit('lease.failed', { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid, reason = ARGV[6] },
  '{"state":' .. quote(state) .. ',"failures":' .. F(failures) .. ',"reason":' .. quote(ARGV[6]) .. -- @tells-state
  ',"retryable":' .. (ARGV[7] == '1' and 'true' or 'false') .. facts .. '}')
if t.delegated then
  cancel_children(tid, t, rid) -- @fails-subtasks
  -- What it delegates from now on is other work, by whatever key.
  put(t, 'delegated', '0', 'broods', F(num(t.broods) + 1))
end
return state
