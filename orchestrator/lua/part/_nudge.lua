-- needs: facts
-- nudge_run tells a run that it seems to be stuck. The adapter gets the nudge by watch and renewal,
-- and the agent with the answer of its next tool call.
local function nudge_run(tid, rid, r, cause, reason)
  local number = F(num(r.nudges) + 1)
  local nudge = '{"number":' .. number .. ',"cause":' .. quote(cause) .. ',"reason":' .. quote(reason) ..
    ',"atMs":' .. RAW .. '}'
  put(r, 'nudges', number, 'nudge', nudge, 'nudge_for', '')
  local facts, spec = task_facts(tid)
  emit('run.stalled', { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid, reason = reason },
    '{"cause":' .. quote(cause) .. ',"reason":' .. quote(reason) .. ',"number":' .. r.nudges ..
    run_facts(r, spec) .. facts .. '}')
  wake('task ' .. tid)
end

-- nudge_for_call answers the nudge that goes with a call, or ''. A call that changes something has
-- a name. It takes the nudge, and its repeats get it, too. A call that only reads gets it as long
-- as no other call has taken it.
local function nudge_for_call(r, name)
  if not r.nudge or r.nudge_for ~= '' and r.nudge_for ~= name then return '' end
  if name ~= '' and r.nudge_for == '' then put(r, 'nudge_for', name) end -- @nudges-once
  return r.nudge -- @tells-nudge
end
