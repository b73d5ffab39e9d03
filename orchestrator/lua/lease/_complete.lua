-- needs: fence end_lease tree close_task facts
-- check_answers_client is the refusal of a message that would answer the client of a task: the client must have asked
-- for one, nobody reviews messages, and a client that was shown something has seen the task already.
local function check_answers_client(tid, t)
  local client = pick(t[1], 'client', 'context').client and cjson.decode(call('GET', K('spec:', tid)) or '{}').client
  if not client or not client.takesMessage then return refuse('state_conflict.takes_no_message') end -- @takes-message
  if t.review ~= 'none' then return refuse('state_conflict.message_reviewed') end -- @reviewed-message
  if call('EXISTS', K('emitted:', tid)) == 1 then -- @emitted-before
    return refuse('state_conflict.message_after_emit')
  end
end

-- complete is the verb of this name, for advance too. It returns the task's
-- state, or the refusal.
local function complete(tid, rid, secret, presented, hash, output, mode, summary, answers_client)
  local t, r, deadline, err = fenced(tid, rid, secret, presented)
  if err then return repeated_answer(tid, rid, secret, 'complete', hash) or err end
  local no = answers_client and check_answers_client(tid, t)
  if no then return no end
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
