-- flags: allow-oom
-- leases lists who holds what, the next to expire first.
-- ARGV: limit
-- Reply: raw (ms), rows: taskId, runId, agentId, fencingToken, leaseTtlMs, renewals
local rows = {}
local live = call('ZRANGE', K('deadlines'), 0, num(ARGV[1]) - 1, 'WITHSCORES')
for i = 1, #live, 2 do
  local rid = call('HGET', K('task:', live[i]), 'run')
  local r = call('HMGET', K('run:', rid), 'agent', 'token', 'renewals')
  rows[#rows + 1] = named{ taskId = live[i], runId = rid, agentId = r[1], fencingToken = r[2],
    leaseTtlMs = F(num(live[i + 1]) - now), renewals = r[3] }
end
return named{ raw = RAW, rows = rows }
