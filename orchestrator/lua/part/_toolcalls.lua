-- needs: fence nudge end_lease retry_policy
-- Tool calls as signs of life, and as signs of a loop.
local LOOP = 5 -- of the same call in a row: then the agent is told, and after as many more its run ends

-- note_tool_call notes a call of a tool. It returns the nudge that goes with the answer,
-- or '', and nothing when the run was ended: what the agent repeats for ever
-- goes to a person. call_id says which calls are the same, words is the call
-- for people, name is that of nudge_for_call. What has the request id of the call
-- before is that call again, and no act of its own.
local function note_tool_call(tid, rid, t, r, deadline, call_id, words, name, req)
  pick(r[1], 'call', 'call_by', 'same', 'nudges', 'nudge_for')
  if req ~= '' and r.call_by == req then return nudge_for_call(r, name) end -- @same-look
  local same = r.call == call_id and num(r.same) + 1 or 1 -- @same-call
  put(r, 'active', NOW, 'call', call_id, 'call_by', req, 'same', F(same)) -- @sign-of-life
  if same == LOOP then -- @tells-loop
    nudge_run(tid, rid, r, 'loop', 'the same call came ' .. F(same) .. ' times in a row: ' .. words)
  elseif same == 2 * LOOP then -- @ends-loop
    local why = 'the same call came ' .. F(same) .. ' times in a row: ' .. words
    end_lease(tid, rid, 'failed', 'stalled', confirmed_deadline(r, deadline))
    call('SET', K('detail:', rid), why)
    local state, failures = apply_retry_policy(tid, t, rid, 'stalled', false, why) -- @stalled-for-good
    emit('lease.failed', { task = tid, run = rid, agent = r.agent, token = r.token, actor = 'server', reason = why },
      '{"state":' .. quote(state) .. ',"failures":' .. F(failures) .. ',"reason":' .. quote(why) ..
      ',"retryable":false}')
    return nil
  end
  return nudge_for_call(r, name)
end
