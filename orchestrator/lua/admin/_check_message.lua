-- needs: findings messagebytes
local MESSAGE = { 'to', 'kind', 'from', 'task', 'number', 'size', 'key', 'root' }

-- check_message checks the lists of a message. How many bytes a key or a tree has is known from all
-- messages only, so a number that was lost begins at one.
local function check_message(id, m)
  for _, field in ipairs(MESSAGE) do
    if not m[field] then return report_violation('message_damaged', id, 'it has no ' .. field) end
  end
  local outgoing = m.from == m.to or m.kind == 'agent' and m.task == m.to -- for people, so in no inbox
  if not m.read and not outgoing then check_member('inbox', K('unread:', m.to), id, m.number) end
  for _, of in ipairs({ m.to, m.task }) do
    local key = K('messages:', of)
    check_member('message', key, id, call('ZSCORE', key, id) and m.number)
  end
  local bytes = num(m.size) + MESSAGE_OVERHEAD
  for _, owner in ipairs({ m.key, m.root }) do
    if owner ~= '' and message_bytes_of(owner) < bytes then
      report_violation('message_uncounted', id, owner .. ' counts fewer bytes than it has', function()
        call('SET', K('message-bytes:', owner), F(bytes))
      end)
    end
  end
end

-- check_unread checks an inbox. It returns the number of entries.
local function check_unread(of)
  local key, bytes = K('unread:', of), 0
  local ids = call('ZRANGE', key, 0, -1)
  for _, id in ipairs(ids) do
    local m = call('HMGET', K('message:', id), 'to', 'read', 'size')
    if m[1] == of and not m[2] then
      bytes = bytes + num(m[3])
      check_member('sent', K('sent'), id, true, NOW)
    else
      check_member('inbox', key, id, false)
    end
  end
  if num(call('HGET', K('inbox:', of), 'bytes')) ~= bytes then
    report_violation('inbox_bytes', of, 'it does not count ' .. F(bytes) .. ' bytes', function()
      call('HSET', K('inbox:', of), 'bytes', F(bytes))
    end)
  end
  return #ids
end
