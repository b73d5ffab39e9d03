-- needs: nudge end_lease retry_policy
-- Tool calls as signs of life, and as signs of a loop.
local LOOP = 5 -- of the same call in a row: then the agent is told, and after as many more its run ends
local POLL = 900 -- ms: a look this long after the one before begins a new row; polls each second come with jitter

-- note_tool_call notes a call of a tool. It returns the nudge that goes with the answer,
-- or '', and nothing when the run was ended: what the agent repeats for ever
-- goes to a person. call_id says which calls are the same, words is the call
-- for people, name is that of nudge_for_call. What has the request id of the call
-- before is that call again, and no act of its own. A look changes nothing, so an agent may
-- repeat it to wait: it counts only if it comes at once.
local function note_tool_call(tid, rid, t, r, deadline, call_id, words, name, req, look)
  pick(r[1], 'call', 'call_by', 'call_at', 'same', 'nudges', 'nudge_for')
  if req ~= '' and r.call_by == req then return nudge_for_call(r, name) end -- @same-look
  local again = r.call == call_id -- @same-call
  if look and now - num(r.call_at) >= POLL then again = false end -- @polls
  local same = again and num(r.same) + 1 or 1
  put(r, 'active', NOW, 'call', call_id, 'call_by', req, 'call_at', NOW, 'same', F(same)) -- @sign-of-life
  if same == LOOP then -- @tells-loop
    nudge_run(tid, rid, r, 'loop', 'the same call came ' .. F(same) .. ' times in a row: ' .. words)
  elseif same == 2 * LOOP then -- @ends-loop
    local why = 'the same call came ' .. F(same) .. ' times in a row: ' .. words
    end_lease(tid, rid, 'failed', 'stalled', deadline)
    call('SET', K('detail:', rid), why)
    local state, failures, facts = apply_retry_policy(tid, t, rid, 'stalled', false, why) -- @stalled-for-good
    emit('lease.failed', { task = tid, run = rid, agent = r.agent, token = r.token, actor = 'server', reason = why },
      '{"state":' .. quote(state) .. ',"failures":' .. F(failures) .. ',"reason":' .. quote(why) ..
      ',"retryable":false' .. facts .. '}')
    return nil
  end
  return nudge_for_call(r, name)
end

-- note_wait_call is note_tool_call for one look of a call that may wait: only, first or again.
-- settled says that there is nothing to wait for, left is how long the call waits
-- from now on. Waiting is a sign of life as long as it lasts, and no loop,
-- however often it is asked for. Only the first look is a call. The later ones leave the row alone of
-- what the agent calls meanwhile.
local function note_wait_call(tid, rid, t, r, deadline, call_id, words, look, settled, left)
  if look == 'again' or look == 'first' and not settled then
    put(r, 'active', F(now + (settled and 0 or left)))
    if look == 'first' then put(r, 'call', '', 'same', '0') end -- @waits-once
    return nudge_for_call(r, '')
  end
  return note_tool_call(tid, rid, t, r, deadline, call_id, words, '', '', true)
end
