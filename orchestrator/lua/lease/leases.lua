-- flags: allow-oom
-- leases lists what runs now: the leases that are held, the next to expire first, or first
-- what needs a look. It gives fewer than it is asked for when its answer becomes too long.
-- alone
-- ARGV: limit, how many it looks at, task or '', agent or '' (the leases of its registration, or,
--   where it has none, those of its runs), 1 to put first what needs a look or 0
-- Reply: raw (ms), total (live leases that match), rows: taskId, runId, agentId, agentName, fencingToken, leaseTtlMs,
--   renewals, attempt, startedMs, idleMs, spec, timeout (s, of the adapter), nudge, reportedMs, report, granted,
--   spent, held, carved
local limit, looks, task, agent = num(ARGV[1]), num(ARGV[2]), ARGV[3], ARGV[4]

local function row(tid, deadline)
  local rid = call('HGET', K('task:', tid), 'run')
  local r = pick(K('run:', rid), 'agent', 'token', 'renewals', 'attempt', 'started', 'active', 'nudge', 'report',
    'report_at', 'timeout')
  local e = call('HMGET', K('env:', tid), 'granted_t', 'granted_u', 'spent_t', 'spent_u', 'held_t', 'held_u',
    'carved_t', 'carved_u')
  local spec = call('GET', K('spec:', tid)) or ''
  return named{ taskId = tid, runId = rid, agentId = r.agent, agentName = call('HGET', K('agent:', r.agent), 'name'),
    fencingToken = r.token, leaseTtlMs = F(num(deadline) - now), renewals = r.renewals, attempt = r.attempt,
    startedMs = r.started, idleMs = r.active and F(math.max(0, now - num(r.active))), spec = spec,
    timeout = r.timeout, nudge = r.nudge, reportedMs = r.report_at, report = r.report, granted = { e[1], e[2] },
    spent = { e[3], e[4] }, held = { e[5], e[6] }, carved = { e[7], e[8] } },
    #spec + #(r.nudge or '') + #(r.report or '') + 600
end

-- by_deadline lists the leases of some tasks with their deadlines, the next to expire first.
local function by_deadline(tasks)
  local live = {}
  for _, tid in ipairs(tasks) do
    local deadline = call('ZSCORE', K('deadlines'), tid)
    if deadline then live[#live + 1] = { tid, deadline } end
  end
  table.sort(live, function(a, b) return num(a[2]) < num(b[2]) end)
  return live
end

local function all_live(most)
  local live, flat = {}, call('ZRANGE', K('deadlines'), 0, most - 1, 'WITHSCORES')
  for i = 1, #flat, 2 do live[#live + 1] = { flat[i], flat[i + 1] } end
  return live, call('ZCARD', K('deadlines'))
end

-- of_agent lists the leases of an agent. Those of a registration have an index.
local function of_agent(id)
  local a = call('HMGET', K('agent:', id), 'status', 'incarnation')
  if a[1] then
    local key = K('holder:', id .. ':' .. a[2])
    return by_deadline(call('ZRANGE', key, 0, looks - 1)), call('ZCARD', key)
  end
  local mine = {}
  for _, l in ipairs((all_live(looks))) do
    local rid = call('HGET', K('task:', l[1]), 'run')
    if rid and call('HGET', K('run:', rid), 'agent') == id then mine[#mine + 1] = l end
  end
  return mine, #mine
end

-- need is how much a run needs a look: whether it was nudged, the part that it has used of its
-- timeout or envelope, how long it has been silent, when it started, its id.
local function need(tid)
  local rid = call('HGET', K('task:', tid), 'run')
  local r = call('HMGET', K('run:', rid), 'nudge', 'report_at', 'started', 'active', 'timeout')
  local e = call('HMGET', K('env:', tid), 'granted_t', 'spent_t', 'held_t', 'carved_t', 'granted_u', 'spent_u',
    'held_u', 'carved_u')
  local function used(i) return (num(e[i + 1]) + num(e[i + 2]) + num(e[i + 3])) / math.max(1, num(e[i])) end
  local share, elapsed = math.max(used(1), used(5)), math.max(0, raw - num(r[3]))
  local timeout = string.match(call('GET', K('spec:', tid)) or '', '"timeoutSeconds":(%d+)') or r[5]
  if timeout then share = math.max(share, elapsed / (num(timeout) * 1000)) end
  local nudged = r[1] and num(r[2]) <= num(string.match(r[1], '"atMs":(%d+)}$')) and 1 or 0
  return { nudged, share, r[4] and math.max(0, now - num(r[4])) or elapsed, -num(r[3]), rid }
end

local function needs_more(a, b)
  for i = 1, 4 do
    if a[i] ~= b[i] then return a[i] > b[i] end
  end
  return a[5] < b[5]
end

local live, total
if task ~= '' then
  live = by_deadline({ task })
  total = #live
elseif agent ~= '' then
  live, total = of_agent(agent)
else
  live, total = all_live(ARGV[5] == '1' and looks or limit)
end
if ARGV[5] == '1' then
  local needs = {}
  for _, l in ipairs(live) do needs[l[1]] = need(l[1]) end
  table.sort(live, function(a, b) return needs_more(needs[a[1]], needs[b[1]]) end) -- @looks-first
end

local rows, size = {}, 0
for i = 1, math.min(limit, #live) do
  local shown, bytes = row(live[i][1], live[i][2])
  size = size + bytes
  if size > MAX_REPLY and #rows > 0 then break end
  rows[#rows + 1] = shown
end
return named{ raw = RAW, total = total, rows = rows }
