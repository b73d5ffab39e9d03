-- flags: allow-oom
-- needs: key_view runkey
-- run_key_renew renews a run key, or ends it. Ending it ends no lease. A run key
-- that still has leases is deleted when they have ended.
-- ARGV: key id, life ms from now on; 0 ends the key
-- Reply: a key_view, with an empty record once it was deleted
-- Errors: unauthenticated (it has ended, or is not a run key)
local id, life = ARGV[1], num(ARGV[2])
local parent = call('HGET', K('key:', id), 'parent')
if life == 0 then
  if parent then
    wake('key ' .. call('HGET', K('key:', id), 'hash'))
    set_run_key_expiry(id, parent, RAW) -- @stops-run-key
    delete_expired_run_keys(K('run-keys-of:', parent), 10)
  end
  return key_view(id)
end
if not parent or not key_is_live(id) then return refuse('unauthenticated', 'kind', 'key') end -- @live-run-key
set_run_key_expiry(id, parent, run_key_expiry(parent, life)) -- @renews-run-key
return key_view(id)
