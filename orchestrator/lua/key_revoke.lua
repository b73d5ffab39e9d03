-- key_revoke ends a key at once; revoking it again changes nothing.
-- ARGV: key id, actor
-- Reply: {key id, key hash}
-- Errors: not_found
local key = K('key:', ARGV[1])
local revoked = call('HGET', key, 'revoked')
if not revoked then return refuse('not_found', 'kind', 'key') end
if revoked == '0' then
  call('HSET', key, 'revoked', F(raw))
  emit('key.revoked', { actor = ARGV[2] }, '{"keyId":' .. quote(ARGV[1]) .. '}')
end
wake('key ' .. call('HGET', key, 'hash'))
return { ARGV[1], call('HGETALL', key) }
