-- needs: expire stale_entry
-- What the revocation of a key does to the leases that were acquired with it.

-- end_key_leases ends up to limit leases of a key and returns how many it looked
-- at. No failure is counted. The process of such a run may still be there, so
-- the next run of its task waits until it has exited, or for the old deadline.
local function end_key_leases(id, actor, limit)
  local key = K('leases-of:', id)
  local tasks = call('ZRANGE', key, 0, limit - 1)
  for _, tid in ipairs(tasks) do
    local t = load(K('task:', tid))
    local r = t and t.state == 'leased' and pick(K('run:', t.run), 'agent', 'token', 'incarnation', 'key')
    if r and r.key == id then
      expire_lease(tid, t, 'released', 'key_revoked', actor)
    else
      remove_stale_entry('key_lease_extra', key, tid)
    end
  end
  return #tasks
end
