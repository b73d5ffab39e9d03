-- flags: allow-oom
-- needs: queue end expire
-- expire_due ends leases that are past their deadline.
-- ARGV: actor, limit
-- Reply: number of leases ended
local due = call('ZRANGEBYSCORE', K('deadlines'), '-inf', F(now), 'LIMIT', 0, ARGV[2])
for _, tid in ipairs(due) do
  local t = load(K('task:', tid))
  if t and t.state == 'leased' then
    local confirmed = call('HGET', K('run:', t.run), 'confirmed')
    local class = confirmed == '1' and 'lease_expired' or 'undelivered'
    expire(tid, t, class, class, ARGV[1])
  else -- only a damaged store has one; it must not hold up the others
    call('ZREM', K('deadlines'), tid)
  end
end
return #due
