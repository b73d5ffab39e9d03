-- exhausted_runs is the number of runs that a task has had since a person last
-- decided, when its run is the last that the quota allows; otherwise it is nil.
local function exhausted_runs(t)
  local used = num(pick(t[1], 'runs_used').runs_used)
  return used > 0 and used or nil
end

-- reset_run_count resets the count when a person lets a task run again.
local function reset_run_count(t)
  put(t, 'runs_from', t.attempt, 'runs_used', '0') -- @restarts-count
end

-- handoff_facts is what an event says about a hand-off, after a comma.
local function handoff_facts(hid, kind, deadline, policy, facts)
  local out = ',"handoffId":' .. quote(hid) .. ',"kind":' .. quote(kind) .. facts
  if deadline == 0 then return out end
  return out .. ',"deadlineSeconds":' .. F(math.max(0, math.floor((deadline - now) / 1000))) .. ',"onDeadline":' ..
    quote(policy)
end

-- assignee_fact names the person for whom a hand-off was claimed, after a comma.
local function assignee_fact(h)
  return h.assignee and ',"assignee":' .. quote(h.assignee) or ''
end

-- create_handoff opens the hand-off of a run: its id is the run's under another prefix.
-- After the last run of the quota a person must decide, not a deadline. facts is what events say about
-- the question, after a comma. The result is the id, and these facts with those of the hand-off.
local function create_handoff(tid, t, rid, kind, body, deadline, policy, facts)
  local hid = 'handoff_' .. string.sub(rid, 5)
  if policy == 'deny' and exhausted_runs(t) then policy = 'escalate' end -- @person-after-last-run
  put(record(K('handoff:', hid)), 'task', tid, 'run', rid, 'kind', kind, 'state', 'open', 'created', RAW,
    'body', body, 'deadline', F(deadline), 'policy', policy, 'claimed', '', 'facts', facts)
  call('ZADD', K('handoffs:', 'open'), RAW, hid)
  call('ZADD', K('open-by-kind:', kind), RAW, hid)
  if deadline > 0 then call('ZADD', K('chores'), F(deadline), 'handoff:' .. hid) end
  put(t, 'handoff', hid)
  count_activity('asked', 1)
  return hid, handoff_facts(hid, kind, deadline, policy, facts)
end

-- close_handoff takes a hand-off from open to its final state; said is what the loser of two
-- decisions is told.
local function close_handoff(hid, state, by, said)
  call('ZREM', K('handoffs:', 'open'), hid)
  call('ZREM', K('open-by-kind:', call('HGET', K('handoff:', hid), 'kind') or ''), hid)
  call('ZREM', K('chores'), 'handoff:' .. hid)
  call('ZADD', K('handoffs:', state), RAW, hid)
  local h = record(K('handoff:', hid))
  put(h, 'state', state, 'by', by, 'closed', RAW, 'said', said)
end
