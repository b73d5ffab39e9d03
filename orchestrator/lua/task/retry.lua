-- needs: conflicts create handoff money queue review_decision view
-- essential
-- retry queues an escalated task again with its failures forgotten, or makes a
-- new task from one that failed, was cancelled or was rejected, with what
-- people have answered on that one.
-- alone
-- ARGV: task, actor, request key, body hash, reason, new task id, cap of the house or ''
-- Reply: view of the task that will run
-- Errors: not_found, task_closed (completed), state_conflict (also while the new one is open),
--   too_many_lanes, idempotency_conflict, budget_exceeded (the house)
local tid, by, key, body, reason, new = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local was, err = find_request(key, body)
if err then return err end
if was then return task_view(was, false, 0) end
local t = load(K('task:', tid))
if not t then return refuse('not_found', 'kind', 'task') end
if t.state == 'completed' then return refuse_closed_task(tid, t) end -- @not-completed

-- Two people who want a closed task tried again want it once.
local repeated = t.anew and pick(K('task:', t.anew), 'state', 'by', 'created')
if repeated and repeated.state and not TERMINAL[repeated.state] and not cancelled_ancestor(repeated) then -- @repeated
  return refuse_as_second('state_conflict.retried', repeated.by, 'state', t.state, 'decision', 'retry',
    'at', repeated.created, 'newTaskId', t.anew)
end

if TERMINAL[t.state] then
  if not lane_available(t.lane) then return refuse('too_many_lanes', 'limit', MAX_LANES) end
  local s = { id = new, not_before = '0', labels = t.labels or '', fixes = t.fixes or '', retries = tid, by = by,
    spec = call('GET', K('spec:', tid)), assignee = t.assignee or '', client = '',
    input = call('GET', K('edit:', tid)) or call('GET', K('in:', tid)) or '', -- @repeats-edit
    house = ARGV[7] }
  for _, f in ipairs({ 'lane', 'pri', 'window', 'max_attempts', 'backoff', 'retry_on', 'escalate', 'review',
      'role' }) do
    s[f] = t[f]
  end
  s.parent = open_parent(t)
  local e = envelope(tid)
  s.tokens, s.nano = e.envelope_t or '0', e.envelope_u or '0'
  local no = check_covered(s)
  if no then return no end
  emit('task.retried', { task = tid, actor = by }, '{"state":' .. quote(t.state) .. ',"newTaskId":' .. quote(new) ..
    ',"reason":' .. quote(reason) .. ',"before":{"newTaskId":' .. (t.anew and quote(t.anew) or 'null') ..
    '},"after":{"newTaskId":' .. quote(new) .. '}}')
  put(t, 'anew', new)
  create_task(s, last_open_run(t), ',"retries":' .. quote(tid)) -- @repeat-waits
  local said = answers_of(tid)
  if #said > 0 then call('RPUSH', K('answers:', new), unpack(said)) end
  remember(key, body, new, DAY)
  return task_view(new, false, 0)
end

if cancelled_ancestor(t) then return refuse_cancelled_tree(t) end
local kind = t.state == 'handoff' and call('HGET', K('handoff:', t.handoff), 'kind')
if kind ~= 'escalation' then
  return refuse('state_conflict.wrong_state', 'state', t.state, 'need', 'an_escalated_hand-off_or_a_closed_task')
end
close_handoff(t.handoff, 'answered', by, reason)
put(t, 'failures', '0')
reset_run_count(t) -- @retry-counts-again
move(tid, t, 'queued')
enqueue(tid, t, 0, t.run)
emit('task.retried', { task = tid, actor = by }, '{"state":"queued","failures":0,"reason":' .. quote(reason) ..
  before_after('state', 'handoff', 'queued') .. '}')
remember(key, body, tid, DAY)
return task_view(tid, false, 0)
