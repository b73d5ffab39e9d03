-- needs: handoff queue agent conflicts
-- input_for_event is an input as events show it: the first 500 bytes.
local function input_for_event(json)
  local s = #json > 500 and string.gsub(string.sub(json, 1, 500), '[\192-\255][\128-\191]*$', '') .. '…' or json
  return ',"input":' .. quote(s)
end

-- answer_handoff records a person's answer on an open hand-off and re-queues its task,
-- for a minute only to the agent that asked, if that one still takes tasks. What
-- the person has made of the input, '' if nothing, is what later runs get.
local function answer_handoff(hid, h, t, by, answer, option, input, said)
  local edited = input ~= ''
  local question = h.body ~= '' and cjson.decode(h.body).question or ''
  call('SET', K('answer:', hid), '{"handoffId":' .. quote(hid) .. ',"question":' .. quote(question) ..
    ',"answer":' .. answer .. ',"option":' .. option .. ',"input":' .. (edited and input or 'null') ..
    ',"inputEdited":' .. tostring(edited) .. ',"by":' .. quote(by) .. ',"atMs":' .. RAW .. '}')
  call('RPUSH', K('answers:', h.task), hid)
  local was = edited and input_for_event(call('GET', K('edit:', h.task)) or call('GET', K('in:', h.task)) or 'null')
    or ''
  if edited then call('SET', K('edit:', h.task), input) end -- @keeps-edit
  close_handoff(hid, 'answered', by, said)
  local r = pick(K('run:', h.run), 'agent', 'incarnation')
  local agent = r.agent
  if h.kind == 'escalation' then
    put(t, 'failures', '0') -- @stores-no-failures
  elseif agent and agent ~= '' and (num(r.incarnation) == 0 or takes_tasks(agent)) then
    put(t, 'pin', agent, 'pin_for', 'answer') -- @pins-answer
  end
  if by ~= 'deadline' then reset_run_count(t) end -- @counts-runs-again
  move(h.task, t, 'queued')
  enqueue(h.task, t, 0, h.run)
  emit('task.answered', { task = h.task, actor = by }, '{"state":"queued","handoffId":' .. quote(hid) ..
    ',"failures":' .. F(num(t.failures)) .. ',"answer":' .. quote(said) .. ',"inputEdited":' .. tostring(edited) ..
    ',"before":{"state":"handoff"' .. was ..
    '},"after":{"state":"queued"' .. (edited and input_for_event(input) or '') .. '}}')
end

-- load_open_handoff loads an open hand-off with its task, or the refusal.
local function load_open_handoff(hid)
  local h = load(K('handoff:', hid))
  if not h then return nil, nil, refuse('not_found', 'kind', 'hand-off') end
  local t = load(K('task:', h.task))
  if h.state == 'open' and cancelled_ancestor(t) then return nil, nil, refuse_cancelled_tree(t) end
  if h.state ~= 'open' then return nil, nil, refuse_closed_handoff(h, t) end -- @open-handoff
  return h, t
end
