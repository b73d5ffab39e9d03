-- needs: queue handoff close_task facts
-- What happens to a task whose run has ended without a result.
local FAILURE = { crash = true, timeout = true, stalled = true, no_result = true, agent_failed = true, -- @a-failure
  lease_expired = true, agent_dead = true } -- @failures
-- REQUEUED are the failures that are retried without being listed in retry.on.
local REQUEUED = { agent_failed = true, lease_expired = true, agent_dead = true }

local function backoff(t, failures)
  if failures <= 1 then return 0 end
  local base = num(t.backoff)
  -- 2^30 seconds is beyond every cap; a larger exponent would only overflow.
  local d = base * 2 ^ math.min(failures - 2, 30) -- @backoff-doubles
  return math.min(d, math.max(base, 300000))
end

-- apply_retry_policy applies the retry policy to an ended run and moves the task. It
-- returns the new state, the number of failures and, where people are needed or nothing is tried
-- again, what the event says about it. final says why nothing is
-- tried again when retryable is false. Nothing is tried again after the last run
-- of the quota, whatever its end: otherwise an agent could give a task back for ever.
local function apply_retry_policy(tid, t, rid, class, retryable, final)
  load(t[1])
  local failures, last = num(t.failures), exhausted_runs(t)
  local failed = FAILURE[class]
  if not failed and not last then -- @given-back-again
    move(tid, t, 'queued')
    enqueue(tid, t, 0, rid)
    return 'queued', failures, ''
  end
  if failed then
    failures = failures + 1
    put(t, 'failures', F(failures))
  end
  local again = REQUEUED[class] or string.find(t.retry_on, ',' .. class .. ',', 1, true)
  if retryable and again and failures < num(t.max_attempts) and not last then -- @tries-again
    move(tid, t, 'queued')
    -- It is kept for the worker that has the workspace, if that is registered and active. A worker
    -- without a registration may be gone, and one that let its lease expire may be frozen.
    local r = pick(K('run:', rid), 'agent', 'incarnation', 'workspace')
    local known = num(r.incarnation) > 0 and class ~= 'lease_expired' -- @expiry-is-silence
    if known and r.workspace and r.workspace ~= '' and t.lane ~= 'agent:' .. r.agent then
      local a = pick(K('agent:', r.agent), 'status', 'incarnation')
      if a.status == 'active' and a.incarnation == r.incarnation then -- @prefers-the-living
        put(t, 'pin', r.agent, 'pin_for', 'retry')
      end
    end
    enqueue(tid, t, now + backoff(t, failures), rid) -- @backs-off
    return 'queued', failures, ''
  end
  if failed and t.escalate == 'fail' then -- @fails-task
    close_task(tid, t, 'failed', 'reason', class)
    return 'failed', failures, (task_facts(tid))
  end
  local because = 'it is failure ' .. F(failures) .. ' of ' .. F(num(t.max_attempts)) .. ' allowed'
  if not again then because = 'the task does not list ' .. class .. ' in retry.on' end
  if last then because = 'the task has had ' .. F(last) .. ' runs since a person last decided' end
  if not retryable then because = final or 'the agent called it final' end
  local why = 'Run ' .. F(num(t.attempt)) .. ' ended with ' .. class .. ', and ' .. because ..
      '. Retry, answer, finish or cancel the task.'
  local _, facts = create_handoff(tid, t, rid, 'escalation', '{"question":' .. quote(why) .. '}', 0, 'wait',
    ',"question":' .. quote(clip(why, 500)))
  move(tid, t, 'handoff')
  return 'handoff', failures, facts .. task_facts(tid)
end
