-- complete is the verb of this name, for advance too. It returns the task's
-- state, or the refusal.
local function complete(tid, rid, secret, presented, hash, output)
  local t, r, deadline, err = fenced(tid, rid, secret, presented)
  if err then return told(tid, rid, secret, 'complete', hash) or err end
  end_lease(tid, rid, 'completed', 'success', admitted(r, deadline))
  call('SET', K('out:', tid), output)
  local state = t.review == 'none' and 'completed' or 'review'
  move(tid, t, state)
  put(r, 'closed', 'complete:' .. hash .. ' ' .. state)
  emit('task.' .. state, { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid },
    '{"state":' .. quote(state) .. '}')
  return state
end
