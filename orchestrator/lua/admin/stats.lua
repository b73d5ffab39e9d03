-- flags: allow-oom
-- needs: money
-- stats counts a namespace. Whatever it has, this is a fixed number of looks.
-- ARGV: cap of the house or '', sets to count: by-state:<state>... roster:<status>... open-by-kind:<kind>...
-- Reply: raw, now, tick (ms), lanes, delayed, waiters, handoffs (open ones), seq, paused, paused_why, paused_by,
--   paused_at, store, floor, adopted_at, counts (of each set), judge_overdue (ms that the next agent to be judged is
--   overdue), live (leases that hold), overdue (leases past their deadline), oldest_handoff (ms), day (today's house:
--   limit, available, spent, each tokens and nano-dollars), oldest_review (ms), sums (what was counted), sessions,
--   webhooks (state and events behind of each target), pulse ('slot figure' and n), audit (number of events),
--   audit_first (ms), memory (what the server says of its own), bytes (of the namespace), measured_at (ms)
local m = call('HMGET', META, 'tick', 'seq', 'paused', 'paused_why', 'paused_by', 'paused_at', 'store', 'adopted_at')
local counts = {}
for i = 2, #ARGV do counts[#counts + 1] = call('ZCARD', K(ARGV[i])) end
local due = call('ZRANGE', K('silence'), '0', '0', 'WITHSCORES')[2]
local h = envelope('house:' .. today())
local t, u = string.match(ARGV[1], '^(%d+) (%d+)$')
local day = t and named{ limit = { t, u }, available = { t, u }, spent = { '0', '0' } } or nil
if h.parent then
  day = named{ limit = { h.granted_t, h.granted_u }, available = { h.available_t, h.available_u },
    spent = { h.total_t, h.total_u } }
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
  raw = RAW, now = NOW, tick = m[1], lanes = call('ZCARD', K('lanes')), delayed = call('ZCARD', K('delayed')),
  waiters = call('ZCOUNT', K('waiters'), NOW, '+inf'), handoffs = call('ZCARD', K('handoffs:', 'open')), seq = m[2],
  paused = m[3], paused_why = m[4], paused_by = m[5], paused_at = m[6], store = m[7], floor = F(floor),
  adopted_at = m[8], counts = counts, judge_overdue = F(due and math.max(0, now - num(due)) or 0),
  live = call('ZCOUNT', K('deadlines'), '(' .. NOW, '+inf'),
  overdue = call('ZCOUNT', K('deadlines'), '-inf', NOW),
  oldest_handoff = call('ZRANGE', K('handoffs:', 'open'), '0', '0', 'WITHSCORES')[2], day = day,
  oldest_review = call('ZRANGE', K('in-review'), '0', '0', 'WITHSCORES')[2], sums = call('HGETALL', K('sums')),
  sessions = call('ZCOUNT', K('sessions'), '(' .. NOW, '+inf'), webhooks = targets, pulse = call('HGETALL', K('pulse')),
  audit = call('XLEN', K('audit')), audit_first = first and first[2][4], memory = server_info('memory'),
  bytes = size[1], measured_at = size[2],
}
