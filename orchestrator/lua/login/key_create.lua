-- essential
-- key_create records an API key by its hash; a known hash is left as it is.
-- ARGV: key id, hash, name, scopes (comma), expires ms or 0, actor, request key, body hash,
--   limits of a client key: its roles (comma) or '' for any other key, open tasks, requests a minute or 0
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
local limits = ''
if ARGV[9] ~= '' then -- @limits-of-client
  call('HSET', K('key:', ARGV[1]), 'client_roles', ARGV[9], 'client_open', ARGV[10], 'client_rate', ARGV[11])
  limits = ',"client":{"roles":' .. quote(ARGV[9]) .. ',"maxOpen":' .. ARGV[10] ..
    ',"ratePerMinute":' .. ARGV[11] .. '}'
end
call('ZADD', K('keys'), RAW, ARGV[1])
emit('key.created', { actor = ARGV[6] }, '{"keyId":' .. quote(ARGV[1]) .. ',"name":' .. quote(ARGV[3]) ..
  ',"scopes":' .. quote(ARGV[4]) .. ',"before":null,"after":{"scopes":' .. quote(ARGV[4]) .. limits .. '}}')
remember(ARGV[7], ARGV[8], ARGV[1], DAY)
return named{ id = ARGV[1], created = 1 }
