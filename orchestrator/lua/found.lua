-- found makes a namespace's meta record when there is none, and answers its
-- store id. It is the only script that runs without one, so it has no prelude.
-- bare
-- ARGV: fresh store id
-- Reply: store id
local t = redis.call('TIME')
local raw = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
if redis.call('HSETNX', KEYS[1], 'store', ARGV[1]) == 1 then
  redis.call('HSET', KEYS[1], 'now', raw, 'raw', raw, 'floor', '0', 'seq', '0', 'order', '0')
end
return redis.call('HGET', KEYS[1], 'store')
