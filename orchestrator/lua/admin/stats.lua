-- flags: allow-oom
-- needs: money
-- stats counts a namespace. Whatever it has, this is a fixed number of looks.
-- ARGV: cap of the house or '', sets to count: by-state:<state>... roster:<status>... open-by-kind:<kind>...
-- Reply: {raw, now, tick, lanes, delayed, waiters, open hand-offs, seq, paused,
--   why, by, at, store id, floor, adopted at, count per set..., ms that the next agent to be judged is overdue,
--   leases that hold, leases past their deadline, ms of the oldest open hand-off or nothing,
--   today's house: {limit tokens, nano-dollars, available tokens, nano-dollars, what all of it has
--   spent, both or neither} or nothing,
--   ms of the oldest task in review or nothing, what was counted: {figure, n...}, sessions,
--   targets of webhooks: {state, events behind...}, pulse: {'slot figure', n...},
--   audit log: {events, ms of the oldest or nothing},
--   memory: {what the server says of its own, bytes of the namespace, ms when they were measured; nothing before}}
local m = call('HMGET', META, 'tick', 'seq', 'paused', 'paused_why', 'paused_by', 'paused_at', 'store', 'adopted_at')
local out = { RAW, NOW, m[1] or '0', call('ZCARD', K('lanes')), call('ZCARD', K('delayed')),
  call('ZCOUNT', K('waiters'), NOW, '+inf'), call('ZCARD', K('handoffs:', 'open')), m[2] or '0',
  m[3] or '', m[4] or '', m[5] or '', m[6] or '0', m[7] or '', F(floor), m[8] or '0' }
for i = 2, #ARGV do out[#out + 1] = call('ZCARD', K(ARGV[i])) end
local function add(v) out[#out + 1] = v end
local due = call('ZRANGE', K('silence'), '0', '0', 'WITHSCORES')[2]
add(F(due and math.max(0, now - num(due)) or 0))
add(call('ZCOUNT', K('deadlines'), '(' .. NOW, '+inf'))
add(call('ZCOUNT', K('deadlines'), '-inf', NOW))
add(call('ZRANGE', K('handoffs:', 'open'), '0', '0', 'WITHSCORES')[2] or false)
local h = envelope('house:' .. today())
local t, u = string.match(ARGV[1], '^(%d+) (%d+)$')
if h.parent then
  add({ h.granted_t, h.granted_u, h.available_t, h.available_u, h.total_t, h.total_u })
else
  add(t and { t, u, t, u, '0', '0' } or false)
end
add(call('ZRANGE', K('in-review'), '0', '0', 'WITHSCORES')[2] or false)
add(call('HGETALL', K('sums')))
add(call('ZCOUNT', K('sessions'), '(' .. NOW, '+inf'))
local targets = {} -- there are a hundred at most
for _, id in ipairs(call('ZRANGE', K('webhooks'), 0, -1)) do
  local w = call('HMGET', K('webhook:', id), 'state', 'cursor')
  targets[#targets + 1] = w[1] or ''
  targets[#targets + 1] = F(math.max(0, num(meta.seq) - num(w[2])))
end
add(targets)
add(call('HGETALL', K('pulse')))
local first = call('XRANGE', K('audit'), '-', '+', 'COUNT', 1)[1]
add({ call('XLEN', K('audit')), first and first[2][4] or false })
add({ server_info('memory'), unpack(call('HMGET', K('size'), 'bytes', 'ended')) })
return out
