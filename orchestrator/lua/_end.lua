-- How a lease ends: end_lease does the part every end shares, after decides
-- what becomes of the task.
local FAILURE = { crash = true, timeout = true, stalled = true, no_result = true, agent_failed = true, lease_expired = true }
local REQUEUED = { agent_failed = true, lease_expired = true } -- retried without being listed in retry.on

local function end_lease(tid, rid, state, class)
  local deadline = call('ZSCORE', K('deadlines'), tid) or F(now)
  call('ZREM', K('deadlines'), tid)
  call('HSET', K('run:', rid), 'state', state, 'class', class, 'ended', F(raw), 'ended_at', F(now), 'deadline', deadline)
  wake('task ' .. tid)
end

-- park opens the hand-off of a run: its id is the run's under another prefix.
local function park(tid, t, rid, kind, body, deadline, policy)
  local hid = 'handoff_' .. string.sub(rid, 5)
  call('HSET', K('handoff:', hid), 'task', tid, 'run', rid, 'kind', kind, 'state', 'open', 'created', F(raw),
    'body', body, 'deadline', F(deadline), 'policy', policy, 'claimed', '')
  call('ZADD', K('handoffs:', 'open'), F(raw), hid)
  if deadline > 0 then call('ZADD', K('chores'), F(deadline), 'handoff:' .. hid) end
  call('HSET', K('task:', tid), 'handoff', hid)
  t.handoff = hid
  return hid
end

-- close_handoff takes a hand-off from open to its final state.
local function close_handoff(hid, state, by)
  call('ZREM', K('handoffs:', 'open'), hid)
  call('ZREM', K('chores'), 'handoff:' .. hid)
  call('ZADD', K('handoffs:', state), F(raw), hid)
  call('HSET', K('handoff:', hid), 'state', state, 'by', by, 'closed', F(raw))
end

local function backoff(t, failures)
  if failures <= 1 then return 0 end
  local base = num(t.backoff)
  -- 2^30 seconds is beyond every cap; a larger exponent would only overflow.
  local d = base * 2 ^ math.min(failures - 2, 30)
  return math.min(d, math.max(base, 300000))
end

-- after applies the retry policy to an ended run and moves the task. It
-- returns the new state and the number of failures.
local function after(tid, t, rid, class, retryable)
  local failures = num(t.failures)
  if not FAILURE[class] then
    move(tid, t, 'queued')
    enqueue(tid, t, 0, rid)
    return 'queued', failures
  end
  failures = failures + 1
  call('HSET', K('task:', tid), 'failures', F(failures))
  t.failures = F(failures)
  local again = REQUEUED[class] or string.find(t.retry_on, ',' .. class .. ',', 1, true)
  if retryable and again and failures < num(t.max_attempts) then
    move(tid, t, 'queued')
    enqueue(tid, t, now + backoff(t, failures), rid)
    return 'queued', failures
  end
  if t.escalate == 'fail' then
    move(tid, t, 'failed', 'reason', class)
    return 'failed', failures
  end
  local because = 'it is failure ' .. F(failures) .. ' of ' .. F(num(t.max_attempts)) .. ' allowed'
  if not again then because = 'the task does not list ' .. class .. ' in retry.on' end
  if not retryable then because = 'the agent called it final' end
  local why = 'Run ' .. F(num(t.attempt)) .. ' ended with ' .. class .. ', and ' .. because ..
      '. Retry, answer, finish or cancel the task.'
  park(tid, t, rid, 'escalation', '{"question":"' .. why .. '"}', 0, 'wait')
  move(tid, t, 'handoff')
  return 'handoff', failures
end
