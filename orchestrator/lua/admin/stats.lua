-- flags: allow-oom
-- needs: money
-- stats counts a namespace. Whatever it has, this is a fixed number of looks.
-- alone
-- ARGV: cap of the house or '', sets to count: by-state:<state>... roster:<status>... open-by-kind:<kind>...
-- Reply: raw (ms), what stands in picket.Stats under the name that it has there, stop (mode, reason, by, at), counts
--   (of each set), day (today's house: limit, available, spentInAll, each tokens and nano-dollars), sums (what was
--   counted), targets (state and events behind of each webhook), slots ('slot figure' and n), memory_info
--   (what the server says of its own), bytes (of the namespace), measured_at (ms)
local m = call('HMGET', META, 'tick', 'seq', 'paused', 'paused_why', 'paused_by', 'paused_at', 'store', 'adopted_at')
local counts = {}
for i = 2, #ARGV do counts[#counts + 1] = call('ZCARD', K(ARGV[i])) end
local due = call('ZRANGE', K('silence'), '0', '0', 'WITHSCORES')[2]
local h = envelope('house:' .. today())
local t, u = string.match(ARGV[1], '^(%d+) (%d+)$')
local day = t and named{ limit = { t, u }, available = { t, u }, spentInAll = { '0', '0' } } or nil
if h.parent then
  day = named{ limit = { h.granted_t, h.granted_u }, available = { h.available_t, h.available_u },
    spentInAll = h.total_u and { h.total_t, h.total_u } or nil }
end
local targets = {} -- there are a hundred at most
for _, id in ipairs(call('ZRANGE', K('webhooks'), 0, -1)) do
  local w = call('HMGET', K('webhook:', id), 'state', 'cursor')
  targets[#targets + 1] = w[1] or ''
  targets[#targets + 1] = F(math.max(0, num(meta.seq) - num(w[2])))
end
local first = call('XRANGE', K('audit'), '-', '+', 'COUNT', 1)[1]
local size = call('HMGET', K('size'), 'bytes', 'ended')
return named{
  raw = RAW, storeTime = NOW, lastTick = m[1], lanes = call('ZCARD', K('lanes')), delayed = call('ZCARD', K('delayed')),
  agentSessions = call('ZCARD', K('asessions')),
  waiters = call('ZCOUNT', K('waiters'), NOW, '+inf'), handoffs = call('ZCARD', K('handoffs:', 'open')),
  lastSeq = m[2], stop = named{ mode = m[3], reason = m[4], by = m[5], at = m[6] },
  storeId = m[7], floor = F(floor), adoptedAt = m[8], counts = counts,
  judgeLateMs = F(due and math.max(0, now - num(due)) or 0),
  leases = call('ZCOUNT', K('deadlines'), '(' .. NOW, '+inf'),
  leasesDue = call('ZCOUNT', K('deadlines'), '-inf', NOW),
  oldestHandoff = call('ZRANGE', K('handoffs:', 'open'), '0', '0', 'WITHSCORES')[2], day = day,
  oldestReview = call('ZRANGE', K('in-review'), '0', '0', 'WITHSCORES')[2], sums = call('HGETALL', K('sums')),
  sessions = call('ZCOUNT', K('sessions'), '(' .. NOW, '+inf'), targets = targets, slots = call('HGETALL', K('pulse')),
  auditEvents = call('XLEN', K('audit')), oldestAudit = first and first[2][4], memory_info = server_info('memory'),
  bytes = size[1], measured_at = size[2],
}
