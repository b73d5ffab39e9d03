-- flags: allow-oom
-- clockless
-- needs: identity
-- adopt makes this server, as it is, the namespace's store. The new floor voids
-- every older lease in one write; their holders reclaim within the grace. A
-- floor of 0 founds a namespace that nobody ever knew.
-- ARGV: identity seen, store id seen or '', identity adopted seen, floor seen,
--   fresh store id, new floor, sequence number to start above
-- Reply: {store id, floor, seq}
-- Errors: adopt_lost (another was faster)
local m = call('HMGET', META, 'store', 'identity', 'floor', 'seq', 'now')
local here = identity()
if here ~= ARGV[1] or (m[1] or '') ~= ARGV[2] or (m[2] or '') ~= ARGV[3] or (m[3] or '') ~= ARGV[4] then
  return refuse('adopt_lost')
end
raw = server_clock()
now = num(m[5] or F(raw))
local store, new = m[1] or ARGV[5], num(ARGV[6])
call('HSET', META, 'store', store, 'identity', here, 'floor', F(new), 'now', F(now), 'raw', F(raw),
  'seq', F(math.max(num(m[4]), num(ARGV[7]))))
call('HSETNX', META, 'order', '0')
if new > 0 then
  call('HSET', META, 'adopted', F(now), 'adopted_at', F(raw))
  call('HDEL', META, 'adopted_scan')
  call('ZADD', K('chores'), F(now + GRACE), 'adopted')
  emit('store.adopted', { actor = 'server' }, '{"storeId":' .. quote(store) .. ',"floor":' .. F(new) .. '}')
  wake('lane *')
end
return { store, F(new), call('HGET', META, 'seq') }
