-- begin_clock reads store time, once in a call; it judges every deadline. It returns a
-- refusal if this build may not use the store as it is.
local function begin_clock()
  local server = server_clock()
  local m = redis_call('HMGET', META, 'now', 'raw', 'floor', 'paused', 'seq', 'order', 'granted', 'identity',
    'incarnations', 'format', 'migrating')
  if not m[1] or not m[2] then
    return redis.error_reply('store_lost the namespace has no meta record')
  end
  local wrong = wrong_format(m[10], m[11])
  if wrong then return wrong end
  -- A server can become another one under a connection that is open, and a call
  -- can be on its way when a connection is made again: so this is asked here.
  if not same_server(m[8], server) then return refuse('store_changed') end -- @asks-server
  -- Store time never leaps: a step of the server's clock back counts as
  -- nothing, a step forward as one second at most. It is written every 100 ms,
  -- so after a step back it may stand where it stood up to 100 ms before.
  local store, d = num(m[1]), server - num(m[2])
  if d < 0 then -- @time-goes-back
    redis_call('HSET', META, 'raw', F(server)) -- writes time
  else
    if d > 1000 then d = 1000 end -- @time-leaps
    store = store + d
    if d >= 100 then -- @keeps-time
      redis_call('HSET', META, 'now', F(store), 'raw', F(server)) -- writes time
    end
  end
  set_time(store, server)
  floor = num(m[3])
  paused = m[4] or ''
  meta = { seq = m[5], order = m[6], granted = m[7], incarnations = m[9],
    read = { seq = m[5], order = m[6], granted = m[7] } }
end
