-- flags: allow-oom
-- needs: session
-- key_revoke ends a key and its sessions at once; revoking it again changes nothing. The last
-- live admin key stays: without it nobody could make another.
-- ARGV: key id, actor
-- Reply: {key id, key hash}
-- Errors: not_found, state_conflict
local key = K('key:', ARGV[1])
local revoked = call('HGET', key, 'revoked')
if not revoked then return refuse('not_found', 'kind', 'key') end

local function admin(id) -- whether it is a live admin key
  local k = call('HMGET', K('key:', id), 'scopes', 'expires', 'revoked')
  local live = k[3] == '0' and (k[2] == '0' or num(k[2]) > raw)
  return live and string.find(',' .. k[1] .. ',', ',admin,', 1, true)
end

if admin(ARGV[1]) then
  local others = 0
  for _, id in ipairs(call('ZRANGE', K('keys'), 0, -1)) do
    if id ~= ARGV[1] and admin(id) then others = others + 1 end
  end
  if others == 0 then return refuse('state_conflict', 'state', 'the_last_admin_key', 'need', 'another_admin_key') end
end
if revoked == '0' then
  call('HSET', key, 'revoked', RAW)
  local sessions = call('ZRANGE', K('sessions-of:', ARGV[1]), 0, -1)
  close_sessions(ARGV[1], sessions, #sessions, 'key_revoked', ARGV[2])
  emit('key.revoked', { actor = ARGV[2] }, '{"keyId":' .. quote(ARGV[1]) .. ',"before":{"revoked":false},"after":{"revoked":true}}')
end
wake('key ' .. call('HGET', key, 'hash'))
return { ARGV[1], call('HGETALL', key) }
