-- needs: key_view login
-- essential
-- session_open opens a login for a one-time code. A code opens one login. If
-- it is used again with another secret, two browsers have it, and the login that
-- it opened ends. A key has at most 20 logins; then the oldest one ends.
-- ARGV: hash of the secret, hash of the code; both with the host name that they are for
-- Reply: opened (raw ms), key (a key_view); {} when the code has opened a login before
-- Errors: unauthenticated (the code)
local code = K('login:', ARGV[2])
local c = call('HMGET', code, 'key', 'from', 'at', 'session')
local id = c[1]
if not id or now - num(c[3]) >= CODE_LIFE or not key_is_live(id) then -- @live-code
  return refuse('unauthenticated', 'kind', 'code')
end
local key, all = K('session:', ARGV[1]), K('sessions-of:', id)
local at = call('HGET', key, 'at') -- there when this very request was made before
if c[4] and not at then -- @used-code
  if call('EXISTS', K('session:', c[4])) == 1 then -- @closes-on-reuse
    close_logins(id, { c[4] }, call('ZCARD', all), 'code_reused')
  end
  return {}
end
if not at then -- @same-login
  at = RAW
  call('HSET', code, 'session', ARGV[1]) -- @marks-code
  call('ZREMRANGEBYSCORE', all, '-inf', F(now - LIFE))
  local open = call('ZCARD', all)
  if open >= MOST then open = close_logins(id, call('ZRANGE', all, 0, open - MOST), open, 'too_many') end
  call('HSET', key, 'key', id, 'opened', NOW, 'at', RAW, 'seen', NOW)
  call('PEXPIRE', key, F(LIFE))
  call('ZADD', all, NOW, ARGV[1])
  call('ZREMRANGEBYSCORE', K('sessions'), '-inf', NOW)
  call('ZADD', K('sessions'), F(now + LIFE), ARGV[1])
  call('PEXPIRE', all, F(LIFE))
  emit('session.opened', { actor = id }, '{"keyId":' .. quote(id) .. ',"from":' .. quote(c[2]) ..
    ',"before":{"sessions":' .. F(open) .. '},"after":{"sessions":' .. F(open + 1) .. '}}')
end
return named{ opened = at, key = key_view(id) }
