-- flags: allow-oom
-- clockless
-- adopt makes this server, as it is, the namespace's store. The new floor voids
-- every older lease in one write; their holders reclaim within the grace. A
-- floor of 0 founds a namespace that nobody ever knew.
-- ARGV: identity seen, store id seen or '', identity adopted seen, floor seen,
--   fresh store id, new floor, sequence number to start above
-- Reply: OK
-- Errors: adopt_lost (another was faster), store_newer, store_migrating
meta = pick(META, 'store', 'identity', 'floor', 'seq', 'order', 'granted', 'now', 'format', 'gaps', 'migrating')
local wrong = (meta.store or meta.format) and wrong_format(meta.format, meta.migrating) -- @adopts-converted
if wrong then return wrong end
local here = identity()
if here ~= ARGV[1] or (meta.store or '') ~= ARGV[2] or (meta.identity or '') ~= ARGV[3]
    or (meta.floor or '') ~= ARGV[4] then
  return refuse('adopt_lost') -- @adopt-lost
end
local server = server_clock()
set_time(num(meta.now or server), server) -- @keeps-store-time
local first, store, new = not meta.store, meta.store or ARGV[5], num(ARGV[6])
local gap = math.max(num(ARGV[7]) - num(meta.seq), 0)
meta.seq = F(num(meta.seq) + gap) -- @numbers-rise
put(meta, 'store', store, 'identity', here, 'floor', F(new), 'now', NOW, 'raw', RAW, 'seq', meta.seq, -- @stores-floor
  'order', meta.order or '0', 'format', F(FORMAT))
-- Retention counts events by their numbers, so it has to know those that no event has. Of more gaps than it needs, the
-- two oldest become one. A log that is there already can have gaps that nobody has noted.
if gap > 0 then
  local gaps = (meta.gaps or '') .. meta.seq .. ':' .. F(gap) .. ' '
  local _, count = string.gsub(gaps, ' ', '')
  if count > 20 then
    gaps = string.gsub(gaps, '^%d+:(%d+) (%d+):(%d+)', function(one, last, other)
      return last .. ':' .. F(num(one) + num(other))
    end)
  end
  put(meta, 'gaps', gaps) -- @notes-gaps
end
if first and call('EXISTS', K('events')) == 0 then put(meta, 'unnoted', '0:0') end
if new > 0 then
  put(meta, 'adopted', NOW, 'adopted_at', RAW) -- @grace-begins
  call('HDEL', META, 'adopted_scan')
  call('ZADD', K('chores'), F(now + GRACE), 'adopted')
  emit('store.adopted', { actor = 'server' }, -- @tells-adoption
    '{"storeId":' .. quote(store) .. ',"floor":' .. F(new) .. '}')
  wake('lane *')
end
meta.read = {} -- The call stores all numbers. If an adoption is refused or breaks, it stores none.
return 'OK'
