-- flags: allow-oom
-- needs: expire
-- undeliver gives back leases whose grant reached nobody: only those that
-- nobody has confirmed.
-- ARGV: actor, run...
-- Reply: number of leases ended
local n = 0
for i = 2, #ARGV do
  local r = pick(K('run:', ARGV[i]), 'task', 'state', 'confirmed')
  if r.task and r.state == 'running' and r.confirmed == '0' then -- @undelivered-only
    expire_lease(r.task, load(K('task:', r.task)), 'undelivered', 'undelivered', ARGV[1])
    n = n + 1
  end
end
return n
