-- needs: session
-- session_open lets a secret stand for a key. A key has 20 sessions at most: the
-- oldest goes.
-- ARGV: hash of the secret, hash of the key, class of the address it is asked from
-- Reply: {raw ms at which it was opened, {key, key hash}}
-- Errors: unauthenticated (the key)
local id = call('GET', K('keyhash:', ARGV[2]))
if not id or not key_holds(id) then return refuse('unauthenticated', 'kind', 'key') end
local key, all = K('session:', ARGV[1]), K('sessions-of:', id)
if call('EXISTS', key) == 0 then
  call('ZREMRANGEBYSCORE', all, '-inf', F(now - LIFE))
  local open = call('ZCARD', all)
  if open >= MOST then open = close_sessions(id, call('ZRANGE', all, 0, open - MOST), open, 'too_many') end
  call('HSET', key, 'key', id, 'opened', NOW, 'at', RAW, 'seen', NOW)
  call('PEXPIRE', key, F(LIFE))
  call('ZADD', all, NOW, ARGV[1])
  call('ZREMRANGEBYSCORE', K('sessions'), '-inf', NOW)
  call('ZADD', K('sessions'), F(now + LIFE), ARGV[1])
  call('PEXPIRE', all, F(LIFE))
  emit('session.opened', { actor = id }, '{"keyId":' .. quote(id) .. ',"from":' .. quote(ARGV[3]) ..
    ',"before":{"sessions":' .. F(open) .. '},"after":{"sessions":' .. F(open + 1) .. '}}')
end
return { call('HGET', key, 'at'), { id, call('HGETALL', K('key:', id)) } }
