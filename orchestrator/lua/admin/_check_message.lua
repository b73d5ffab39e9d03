-- needs: findings messagebytes
-- What has to be true of messages, and of the inboxes that list those that are unread.
local MESSAGE = { 'to', 'kind', 'from', 'task', 'sent', 'number', 'size', 'key', 'root' }

-- check_message_bytes checks that a key or a tree counts at least the bytes of this message. How many it
-- really has is known from all its messages only, so a number that was lost begins at that of one.
local function check_message_bytes(id, owner, bytes)
  local counted = owner == '' and bytes or message_bytes_of(owner)
  if counted >= bytes then return end
  report_violation('message_uncounted', id, owner .. ' counts ' .. F(counted) .. ' bytes of messages, this one has ' ..
    F(bytes), function()
    call('SET', K('message-bytes:', owner), F(bytes))
  end)
end

-- check_message checks the places of a message in the lists where it stands. One that nobody has read
-- is in the inbox of its receiver, if it is not for people.
local function check_message(id, m)
  for _, field in ipairs(MESSAGE) do
    if not m[field] then return report_violation('message_damaged', id, 'it has no field ' .. field) end
  end
  local outgoing = m.from == m.to or m.kind == 'agent' and m.task == m.to
  if not m.read and not outgoing then check_member('inbox', K('unread:', m.to), id, m.number) end
  for _, of in ipairs({ m.to, m.task }) do
    local listed = call('ZSCORE', K('messages:', of), id) -- a long conversation has let go of its oldest
    check_member('message', K('messages:', of), id, listed and m.number)
  end
  local bytes = num(m.size) + MESSAGE_OVERHEAD
  check_message_bytes(id, m.key, bytes)
  check_message_bytes(id, m.root, bytes)
end

-- check_unread checks that the inbox of a task or an agent lists nothing but messages to it that
-- nobody has read, and counts their bytes. It returns how many entries it has looked at.
local function check_unread(of)
  local bytes, ids = 0, call('ZRANGE', K('unread:', of), 0, -1)
  for _, id in ipairs(ids) do
    local m = call('HMGET', K('message:', id), 'to', 'read', 'size')
    if m[1] == of and not m[2] then
      bytes = bytes + num(m[3])
      check_member('sent', K('sent'), id, true, NOW)
    else
      check_member('inbox', K('unread:', of), id, false)
    end
  end
  local counted = num(call('HGET', K('inbox:', of), 'bytes'))
  if counted ~= bytes then
    report_violation('inbox_bytes', of, 'its inbox counts ' .. F(counted) .. ' bytes, its messages have ' .. F(bytes),
      function()
      if bytes > 0 then
        call('HSET', K('inbox:', of), 'bytes', F(bytes))
      else
        call('DEL', K('inbox:', of))
      end
    end)
  end
  return #ids
end
