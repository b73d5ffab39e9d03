-- flags: allow-oom
-- needs: key_leases key_view login runkey
-- key_revoke ends a key and its logins at once. The leases that were acquired
-- with it end, or are kept. The run keys that it made are revoked, too. Revoking a
-- key again changes nothing, except that it can end leases that were kept. The
-- last live admin key cannot be revoked, because without it no key could be made.
-- ARGV: key id, actor, what happens to its leases: end, keep or '' (those of a
--   key with scope agent end), how many of them this step ends
-- Reply: a key_view
-- Errors: not_found, state_conflict
local key = K('key:', ARGV[1])
local k = call('HMGET', key, 'revoked', 'scopes', 'leases')
local revoked, kept = k[1], k[3] or 'kept'
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
  if others == 0 then
    return refuse('state_conflict.last_admin_key', 'state', 'the_last_admin_key', 'need', 'another_admin_key')
  end
end
local ending = ARGV[3] == 'end' or ARGV[3] == '' and revoked == '0'
  and string.find(',' .. k[2] .. ',', ',agent,', 1, true)
local leases = ending and 'ended' or kept -- @keeps-leases
local live = call('ZCARD', K('leases-of:', ARGV[1]))
if revoked == '0' then -- @revokes-once
  local sessions = call('ZRANGE', K('sessions-of:', ARGV[1]), 0, -1)
  close_logins(ARGV[1], sessions, #sessions, 'key_revoked', ARGV[2])
  call('HSET', key, 'revoked', RAW)
end
local with_runs = ARGV[3] == 'end' or ARGV[3] == '' and revoked == '0'
local run_keys, run_leases = revoke_run_keys(ARGV[1], with_runs) -- @revokes-run-keys
if revoked == '0' or leases ~= kept then
  call('HSET', key, 'leases', leases)
  emit('key.revoked', { actor = ARGV[2] }, '{"keyId":' .. quote(ARGV[1]) .. ',"leases":' .. quote(leases) ..
    ',"liveLeases":' .. F(live) .. ',"runKeys":' .. F(run_keys) ..
    ',"runKeyLeases":' .. quote(with_runs and 'ended' or 'kept') .. ',"liveRunKeyLeases":' .. F(run_leases) ..
    ',"before":{"revoked":' .. (revoked == '0' and 'false' or 'true') .. '},"after":{"revoked":true}}')
end
local limit = num(ARGV[4])
if leases == 'ended' and end_key_leases(ARGV[1], ARGV[2], limit) == limit then -- @revokes-leases
  call('ZADD', K('chores'), '0', 'key:' .. ARGV[1])
end
wake('key ' .. call('HGET', key, 'hash'))
wake('revoked ' .. ARGV[1])
return key_view(ARGV[1])
