-- flags: allow-oom
-- needs: queue end expire
-- undeliver gives back leases whose grant reached nobody: only those that
-- nobody has confirmed.
-- ARGV: actor, run...
-- Reply: number of leases ended
local n = 0
for i = 2, #ARGV do
  local r = call('HMGET', K('run:', ARGV[i]), 'task', 'state', 'confirmed')
  if r[1] and r[2] == 'running' and r[3] == '0' then
    expire(r[1], load(K('task:', r[1])), 'undelivered', 'undelivered', ARGV[1])
    n = n + 1
  end
end
return n
