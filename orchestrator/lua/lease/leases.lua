-- flags: allow-oom
-- leases lists what runs now: the leases that are held, the next to expire first. It
-- gives fewer than it is asked for when its answer becomes too long.
-- ARGV: limit
-- Reply: raw (ms), total (live leases), rows: taskId, runId, agentId, agentName, fencingToken, leaseTtlMs,
--   renewals, attempt, startedMs, idleMs, spec, nudge, reportedMs, report, granted, spent, held, carved
local function row(tid, deadline)
  local rid = call('HGET', K('task:', tid), 'run')
  local r = pick(K('run:', rid), 'agent', 'token', 'renewals', 'attempt', 'started', 'active', 'nudge', 'report',
    'report_at')
  local e = call('HMGET', K('env:', tid), 'granted_t', 'granted_u', 'spent_t', 'spent_u', 'held_t', 'held_u',
    'carved_t', 'carved_u')
  local spec = call('GET', K('spec:', tid)) or ''
  return named{ taskId = tid, runId = rid, agentId = r.agent, agentName = call('HGET', K('agent:', r.agent), 'name'),
    fencingToken = r.token, leaseTtlMs = F(num(deadline) - now), renewals = r.renewals, attempt = r.attempt,
    startedMs = r.started, idleMs = r.active and F(math.max(0, now - num(r.active))), spec = spec, nudge = r.nudge,
    reportedMs = r.report_at, report = r.report, granted = { e[1], e[2] }, spent = { e[3], e[4] },
    held = { e[5], e[6] }, carved = { e[7], e[8] } }, #spec + #(r.nudge or '') + #(r.report or '') + 600
end

local rows, size = {}, 0
local live = call('ZRANGE', K('deadlines'), 0, num(ARGV[1]) - 1, 'WITHSCORES')
for i = 1, #live, 2 do
  local shown, bytes = row(live[i], live[i + 1])
  size = size + bytes
  if size > MAX_REPLY and #rows > 0 then break end
  rows[#rows + 1] = shown
end
return named{ raw = RAW, total = call('ZCARD', K('deadlines')), rows = rows }
