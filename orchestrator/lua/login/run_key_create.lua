-- needs: runkey
-- run_key_create records a key for the adapter of one agent id, made by another
-- key. It also deletes run keys of that key that have expired.
-- ARGV: key id, hash, name, parent key, agent, life ms, how many may live at
--   once, request key, body hash
-- Reply: key id
-- Errors: idempotency_conflict, unauthenticated (the parent ended), forbidden (the parent is a run key or a
--   client key), quota_exceeded
local id, parent, most = ARGV[1], ARGV[4], num(ARGV[7])
local was, err = find_request(ARGV[8], ARGV[9])
if err then return err end
if was then return was end
if not key_is_live(parent) then return refuse('unauthenticated', 'kind', 'key') end -- @parent-lives
if call('HGET', K('key:', parent), 'parent') then return refuse('forbidden', 'kind', 'run_key') end -- @no-grandchild
if call('HGET', K('key:', parent), 'scopes') == 'client' then -- @no-client-parent
  return refuse('forbidden', 'kind', 'client_key')
end
local of = K('run-keys-of:', parent)
if call('ZCOUNT', of, '(' .. RAW, '+inf') >= most then -- @bounds-run-keys
  return refuse('quota_exceeded', 'quota', 'run_keys', 'limit', F(most))
end
delete_expired_run_keys(of, 10) -- @makes-room
call('SET', K('keyhash:', ARGV[2]), id)
call('HSET', K('key:', id), 'name', ARGV[3], 'hash', ARGV[2],
  'scopes', 'agent', 'created', RAW, 'revoked', '0', -- @scope-of-run-key
  'parent', parent, 'agent', ARGV[5]) -- @agent-of-run-key
call('ZADD', K('keys'), RAW, id)
set_run_key_expiry(id, parent, run_key_expiry(parent, num(ARGV[6])))
emit('key.created', { actor = parent }, '{"keyId":' .. quote(id) .. ',"name":' .. quote(ARGV[3]) ..
  ',"scopes":"agent","parentKeyId":' .. quote(parent) .. ',"agentId":' .. quote(ARGV[5]) ..
  ',"before":null,"after":{"scopes":"agent"}}')
remember(ARGV[8], ARGV[9], id, DAY)
return id
