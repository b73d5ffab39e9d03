-- essential
-- key_create records an API key by its hash; a known hash is left as it is.
-- ARGV: key id, hash, name, scopes (comma), expires ms or 0, actor, request key, body hash
-- Reply: id, created
-- Errors: idempotency_conflict
local was, err = find_request(ARGV[7], ARGV[8])
if err then return err end
if was then return named{ id = was } end
local known = call('GET', K('keyhash:', ARGV[2]))
if known then return named{ id = known } end -- @known-key
call('SET', K('keyhash:', ARGV[2]), ARGV[1])
call('HSET', K('key:', ARGV[1]), 'name', ARGV[3], 'hash', ARGV[2], 'scopes', ARGV[4], 'created', RAW,
  'expires', ARGV[5], 'revoked', '0')
call('ZADD', K('keys'), RAW, ARGV[1])
emit('key.created', { actor = ARGV[6] }, '{"keyId":' .. quote(ARGV[1]) .. ',"name":' .. quote(ARGV[3]) ..
  ',"scopes":' .. quote(ARGV[4]) .. ',"before":null,"after":{"scopes":' .. quote(ARGV[4]) .. '}}')
remember(ARGV[7], ARGV[8], ARGV[1], DAY)
return named{ id = ARGV[1], created = 1 }
