-- needs: fence end_lease tree close_task facts
-- complete is the verb of this name, for advance too. It returns the task's
-- state, or the refusal.
local function complete(tid, rid, secret, presented, hash, output, mode, summary)
  local t, r, deadline, err = fenced(tid, rid, secret, presented)
  if err then return repeated_answer(tid, rid, secret, 'complete', hash) or err end
  local open = open_children(tid, t)
  if #open > 0 and mode == '' then return refuse('children_open', 'open', F(#open), 'first', open[1]) end -- @children
  end_lease(tid, rid, 'completed', 'success', confirmed_deadline(r, deadline)) -- @completes-lease
  call('SET', K('out:', tid), output)
  local state = t.review == 'none' and 'completed' or 'review'
  if state == 'completed' then
    close_task(tid, t, 'completed')
  else
    move(tid, t, 'review')
  end
  put(r, 'closed', 'complete:' .. hash .. ' ' .. state, 'said', summary)
  emit('task.' .. state, { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid }, -- @tells-end
    '{"state":' .. quote(state) .. ',"summary":' .. quote(summary) .. task_facts(tid) .. '}')
  if mode == 'detach' then detach_children(open) end -- @detaches-subtasks
  if mode == 'cancel' then cancel_children(tid, t, rid) end
  return state
end
