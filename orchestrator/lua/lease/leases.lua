-- flags: allow-oom
-- leases lists who holds what, the next to expire first.
-- ARGV: limit
-- Reply: {raw ms, row...}, row = {task, run, agent, token, ttl ms, renewals}
local out = { RAW }
local live = call('ZRANGE', K('deadlines'), 0, num(ARGV[1]) - 1, 'WITHSCORES')
for i = 1, #live, 2 do
  local rid = call('HGET', K('task:', live[i]), 'run')
  local r = call('HMGET', K('run:', rid), 'agent', 'token', 'renewals')
  out[#out + 1] = { live[i], rid, r[1], r[2], F(num(live[i + 1]) - now), r[3] or '0' }
end
return out
