-- decide records a person's answer on an open hand-off and re-queues its task,
-- for a minute only to the agent that asked, if that one still takes tasks.
local function decide(hid, h, t, by, answer, option, event)
  local question = h.body ~= '' and cjson.decode(h.body).question or ''
  call('SET', K('answer:', hid), '{"handoffId":' .. quote(hid) .. ',"question":' .. quote(question) ..
    ',"answer":' .. answer .. ',"option":' .. option .. ',"by":' .. quote(by) .. ',"atMs":' .. RAW .. '}')
  call('RPUSH', K('answers:', h.task), hid)
  close_handoff(hid, 'answered', by)
  local r = pick(K('run:', h.run), 'agent', 'incarnation')
  local agent = r.agent
  if h.kind == 'escalation' then
    put(t, 'failures', '0')
    t.failures = '0'
  elseif agent and agent ~= '' and (num(r.incarnation) == 0 or takes_tasks(agent)) then
    put(t, 'pin', agent)
    t.pin = agent
  end
  move(h.task, t, 'queued')
  enqueue(h.task, t, 0, h.run)
  emit(event, { task = h.task, actor = by },
    '{"state":"queued","handoffId":' .. quote(hid) .. ',"failures":' .. F(num(t.failures)) .. '}')
end

-- open_handoff loads an open hand-off with its task, or the refusal.
local function open_handoff(hid)
  local h = load(K('handoff:', hid))
  if not h then return nil, nil, refuse('not_found', 'kind', 'hand-off') end
  local t = load(K('task:', h.task))
  if marked(t) then return nil, nil, refuse('task_closed', 'state', 'cancelled') end
  if h.state ~= 'open' and TERMINAL[t.state] then
    return nil, nil, refuse('task_closed', 'state', t.state, 'by', h.by or '-')
  end
  if h.state ~= 'open' then
    return nil, nil, refuse('state_conflict', 'state', h.state, 'need', 'open', 'by', h.by or '-')
  end
  return h, t
end
