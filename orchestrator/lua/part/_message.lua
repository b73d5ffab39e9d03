-- needs: agent messagebytes quota
-- A message is kept under its id. The conversation of a task or an agent lists its messages by their
-- numbers, and so does its inbox those that are unread. The number of a message is that of its event.
local MOST_UNREAD, MOST_UNREAD_BYTES = 1000, 8388608
local MOST_LISTED = 2000 -- messages of a conversation, more than an inbox takes
local SENDS, SEND_EVERY = 30, 2000 -- a credential sends that many at once, and one more every 2 s

-- take_send takes one message from what a credential may send. It returns a refusal if none is left.
-- The key holds the store time at which everything is left again.
local function take_send(credential)
  local key = K('sends:', credential)
  local full = math.max(num(call('GET', key)), now) + SEND_EVERY
  if full > now + SENDS * SEND_EVERY then -- @bounds-sends
    return refuse('rate_limited', 'cause', 'messages', 'limit', SENDS)
  end
  call('SET', key, F(full), 'PX', F(2 * SENDS * SEND_EVERY))
end

-- add_message_bytes counts bytes of messages for a key and for a tree. Either may be ''.
local function add_message_bytes(key, root, n)
  for _, owner in ipairs({ key, root }) do
    local sum = owner ~= '' and message_bytes_of(owner) + n or 0
    if sum > 0 then -- @keeps-message-bytes
      call('SET', K('message-bytes:', owner), F(sum))
    elseif owner ~= '' then
      call('DEL', K('message-bytes:', owner))
    end
  end
end

-- leave_inbox takes a message out of an inbox, if it is still there.
local function leave_inbox(inbox, id, size)
  if call_now('ZREM', K('unread:', inbox), id) == 0 then return end
  local left = call('HINCRBY', K('inbox:', inbox), 'bytes', F(-size)) -- @uncounts-unread
  if left <= 0 then call('DEL', K('inbox:', inbox)) end
end

-- acknowledge_messages notes that messages were read.
local function acknowledge_messages(ids)
  for _, id in ipairs(ids) do
    local m = call('HMGET', K('message:', id), 'to', 'size')
    if m[1] then -- only a damaged store has none
      leave_inbox(m[1], id, num(m[2])) -- @acknowledges
      call('HSET', K('message:', id), 'read', RAW)
    end
  end
end

-- check_inbox is the refusal of a message for which the inbox has no room.
local function check_inbox(inbox, size)
  local unread, bytes = call('ZCARD', K('unread:', inbox)), num(call('HGET', K('inbox:', inbox), 'bytes'))
  if unread >= MOST_UNREAD or bytes + size > MOST_UNREAD_BYTES then -- @bounds-inbox
    return refuse('inbox_full', 'unread', F(unread), 'bytes', F(bytes))
  end
end

-- check_receiver is the refusal of a message to a task that has ended, or to an agent that is gone.
-- Its second result is the root of the tree of the task, or ''.
local function check_receiver(to)
  if string.sub(to, 1, 5) ~= 'task_' then
    local a = read_agent(to)
    if not a.status then return refuse('not_found', 'kind', 'agent'), '' end
    if GONE[a.status] then -- @tells-live-agents
      return refuse('agent_gone', 'status', a.status, 'reason', a.reason, 'kind', 'message'), ''
    end
    return nil, ''
  end
  local t = pick(K('task:', to), 'state', 'root')
  if not t.state then return refuse('not_found', 'kind', 'task'), '' end
  local state = cancelled_ancestor(t) and 'cancelled' or t.state
  if TERMINAL[state] then return refuse('task_closed', 'kind', 'message', 'state', state), '' end -- @tells-open-tasks
  return nil, root_of(to, t)
end

-- sent_before is what send_message returned about a message that was sent before, or a refusal if another message has
-- its id. m is as for send_message.
local function sent_before(m)
  local was = call('HMGET', K('message:', m.id), 'hash', 'from', 'sent', 'to')
  if not was[1] then return nil end
  local other = was[1] ~= m.hash or was[2] ~= m.from
  if was[4] ~= m.to then other = true end -- @same-receiver
  if other then return refuse('idempotency_conflict', 'kind', 'message') end -- @same-message
  return { id = m.id, sent = was[3] }
end

-- check_reply is the refusal of an answer to a message that is in none of the conversations of its sender.
local function check_reply(id, ...)
  for _, of in ipairs({ ... }) do
    if id == '' or call('ZSCORE', K('messages:', of), id) then return nil end -- @answers-own
  end
  return refuse('not_found', 'kind', 'message')
end

-- task_of_client is the task of a client that an agent runs now, or nil and a refusal. What else the agent runs is not
-- for the client.
local function task_of_client(agent, client)
  local err = check_receiver(agent)
  if err then return nil, err end
  local found
  for _, tid in ipairs(call('ZRANGE', leases_key(agent, read_agent(agent)), 0, -1)) do
    if pick(K('task:', tid), 'client').client == client then -- @tells-own-task
      if found then return nil, refuse('state_conflict.many_tasks') end -- @tells-one-task
      found = tid
    end
  end
  if not found then return nil, refuse('state_conflict.runs_none') end
  return found
end

-- wake_runs tells the runs and the sessions for which a message is. The sessions become due for a wake.
local function wake_runs(to)
  if string.sub(to, 1, 5) == 'task_' then return wake('task ' .. to) end
  wake('inbox ' .. to) -- @wakes-sessions
  local a = pick(K('agent:', to), 'incarnation')
  for _, tid in ipairs(call('ZRANGE', leases_key(to, a), 0, 63)) do wake('task ' .. tid) end -- @wakes-runs
  for _, sid in ipairs(call('ZRANGE', K('asessions:', to), 0, -1)) do
    call('ZADD', K('wake-due'), 'LT', NOW, sid) -- @message-makes-due
  end
end

-- delete_message deletes a message wherever it is listed.
local function delete_message(id)
  local m = call('HMGET', K('message:', id), 'to', 'task', 'size', 'key', 'root')
  call('ZREM', K('sent'), id)
  if not m[1] then return end
  leave_inbox(m[1], id, num(m[3]))
  call('ZREM', K('messages:', m[1]), id)
  if m[2] ~= '' then call('ZREM', K('messages:', m[2]), id) end
  add_message_bytes(m[4], m[5], -num(m[3]) - MESSAGE_OVERHEAD) -- @uncounts-messages
  call('DEL', K('message:', id))
end

-- trim_conversation lets go of the oldest messages of a conversation that is too long. One that nobody
-- has read stays in the inbox, so that it is still delivered.
local function trim_conversation(of)
  while call('ZCARD', K('messages:', of)) > MOST_LISTED do -- @bounds-conversation
    local id = call('ZRANGE', K('messages:', of), 0, 0)[1]
    call('ZREM', K('messages:', of), id)
    local unread = call('ZSCORE', K('unread:', of), id)
    if not unread and call('HGET', K('message:', id), 'to') == of then delete_message(id) end -- @trims-read
  end
end

-- send_message keeps a message and lets its receiver know. m has the strings id, to, kind, from, name,
-- task (of the sender's lease, or ''), run, agent, token, type, body, data, reply and hash; credential,
-- which sends it; key and root, for which its bytes count; limit is the quota of each, in bytes.
-- outgoing says that it is for people, and so in no inbox. It returns id and sent by name, or the refusal.
local function send_message(m, limit, outgoing)
  local size = #m.body + #m.data
  local counted = size + MESSAGE_OVERHEAD
  local no = not outgoing and check_inbox(m.to, size)
    or check_quota('messages_bytes', limit, message_bytes_of(m.key), counted) -- @bounds-key-messages
    or m.root ~= '' and check_quota('messages_bytes', limit, message_bytes_of(m.root), counted) -- @bounds-tree-messages
    or take_send(m.credential)
  if no then return no end
  local about = string.sub(m.to, 1, 5) == 'task_' and m.to or m.task
  emit('message.sent', { task = about, run = m.run, agent = m.agent, token = m.token, actor = m.actor },
    '{"messageId":' .. quote(m.id) .. ',"to":' .. quote(m.to) .. ',"from":' .. quote(m.from) ..
    (m.type ~= '' and ',"type":' .. quote(m.type) or '') .. (m.reply ~= '' and ',"replyTo":' .. quote(m.reply) or '') ..
    ',"bytes":' .. F(size) .. ',"before":null,"after":{"to":' .. quote(m.to) .. '}}')
  local number = meta.seq
  call('HSET', K('message:', m.id), 'to', m.to, 'kind', m.kind, 'from', m.from, 'name', m.name, 'task', m.task,
    'type', m.type, 'body', m.body, 'data', m.data, 'reply', m.reply, 'hash', m.hash, 'sent', RAW, 'number', number,
    'size', F(size), 'key', m.key, 'root', m.root)
  for _, of in ipairs(m.task ~= '' and m.task ~= m.to and { m.to, m.task } or { m.to }) do
    call('ZADD', K('messages:', of), number, m.id) -- @both-sides
    trim_conversation(of)
  end
  call('ZADD', K('sent'), NOW, m.id)
  expect_messages()
  add_message_bytes(m.key, m.root, counted) -- @counts-messages
  if not outgoing then -- @outgoing-in-no-inbox
    call('ZADD', K('unread:', m.to), number, m.id)
    call('HINCRBY', K('inbox:', m.to), 'bytes', F(size)) -- @counts-unread
  end
  return { id = m.id, sent = RAW }
end

-- delete_conversation deletes the messages to a task or an agent, and the list of its own ones. What
-- it has sent to others stays with them.
local function delete_conversation(of)
  for _, list in ipairs({ 'messages:', 'unread:' }) do -- @deletes-unlisted
    for _, id in ipairs(call('ZRANGE', K(list, of), 0, -1)) do
      if call('HGET', K('message:', id), 'to') == of then delete_message(id) end -- @deletes-messages
    end
  end
  call('DEL', K('messages:', of), K('unread:', of), K('inbox:', of))
end

-- message_row shows a message, or nil if it is not kept any more; the second value is about how many
-- bytes it has.
local function message_row(id)
  local m = call('HMGET', K('message:', id), 'to', 'kind', 'from', 'name', 'task', 'type', 'body', 'data', 'reply',
    'sent', 'delivered', 'read', 'number')
  if not m[1] then return nil end
  return named{ id = id, to = m[1], kind = m[2], from = m[3], name = m[4], task = m[5], type = m[6], body = m[7],
    data = m[8], reply = m[9], sent = m[10], delivered = m[11], read = m[12], number = m[13] }, #m[7] + #m[8] + 600
end

-- recent_messages shows the last messages of a conversation, oldest first, within 64 KiB.
local function recent_messages(of)
  local rows, size = {}, 0
  for _, id in ipairs(call('ZRANGE', K('messages:', of), 0, 19, 'REV')) do
    local row, bytes = message_row(id)
    size = size + (bytes or 0)
    if size > 65536 and #rows > 0 then break end -- @bounds-recent
    if row then table.insert(rows, 1, row) end
  end
  return rows
end

-- message_rows shows messages in the order of their ids in the list, as many as fit into a reply. The
-- second value is the ids of those that it shows.
local function message_rows(ids)
  local rows, shown, size = {}, {}, 0
  for _, id in ipairs(ids) do
    local row, bytes = message_row(id)
    size = size + (bytes or 0)
    if size > MAX_REPLY and #rows > 0 then break end -- @bounds-message-rows
    if row then rows[#rows + 1], shown[#shown + 1] = row, id end
  end
  return rows, shown
end
