-- Logins: a secret stands for a key until it is closed, or was not used for a
-- while, or is old, or its key has ended. The sweep of keys by the server only
-- frees memory.
local LIFE, IDLE, MOST = 43200000, 7200000, 20
-- CODE_LIFE is how long a one-time code waits for the browser that was sent on
-- with it, in ms.
local CODE_LIFE = 60000

-- close_logins ends logins of a key, of which there are open now, for its
-- owner unless somebody else is named; it returns how many are left.
local function close_logins(id, secrets, open, reason, actor)
  for _, secret in ipairs(secrets) do
    call('DEL', K('session:', secret))
    call('ZREM', K('sessions-of:', id), secret)
    call('ZREM', K('sessions'), secret)
    emit('session.closed', { actor = actor or id, reason = reason }, '{"keyId":' .. quote(id) ..
      ',"reason":' .. quote(reason) .. ',"before":{"sessions":' .. F(open) .. '},"after":{"sessions":' .. F(open - 1) ..
      '}}')
    open = open - 1
  end
  return open
end
