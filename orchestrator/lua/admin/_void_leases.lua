-- needs: expire
-- end_void_leases ends the leases that nobody reclaimed within the grace of an
-- adoption, one batch of a scan over all live ones; the chore stays noted until
-- the scan is through.
local function end_void_leases(actor, limit)
  local got = call('ZSCAN', K('deadlines'), call('HGET', META, 'adopted_scan') or '0', 'COUNT', limit)
  for i = 1, #got[2], 2 do
    local tid = got[2][i]
    local t = load(K('task:', tid))
    if t and t.state == 'leased' and num(t.token) <= floor then -- @void-only
      expire_lease(tid, t, 'store_adopted', 'store_adopted', actor) -- @ends-void
    end
  end
  if got[1] == '0' then
    call('ZREM', K('chores'), 'adopted')
    call('HDEL', META, 'adopted_scan')
    return #got[2] / 2
  end
  call('HSET', META, 'adopted_scan', got[1])
  return limit
end
