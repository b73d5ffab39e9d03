-- needs: create
-- retain deletes what ended long ago: closed tasks with all they own, and old
-- events from the head of the log.
-- ARGV: task age ms, event age ms, max events, limit
-- Reply: number of tasks and events deleted
local age, event_age, max, limit = num(ARGV[1]), num(ARGV[2]), num(ARGV[3]), num(ARGV[4])
local n = 0
for _, tid in ipairs(call('ZRANGEBYSCORE', K('terminal'), '-inf', F(raw - age), 'LIMIT', 0, limit)) do
  local t = load(K('task:', tid))
  for _, rid in ipairs(call('LRANGE', K('runs:', tid), 0, -1)) do
    local hid = 'handoff_' .. string.sub(rid, 5)
    local state = call('HGET', K('handoff:', hid), 'state')
    if state then call('ZREM', K('handoffs:', state), hid) end
    call('DEL', K('run:', rid), K('detail:', rid), K('seen:', rid), K('refused:', rid), K('gated:', rid), K('log:', rid .. ':stdout'),
      K('log:', rid .. ':stderr'), K('handoff:', hid), K('answer:', hid))
  end
  indexes(t.role or '', t.labels or '', function(key) call('ZREM', key, tid) end)
  call('ZREM', K('by-state:', t.state), tid)
  call('ZREM', K('terminal'), tid)
  call('DEL', K('task:', tid), K('spec:', tid), K('in:', tid), K('out:', tid), K('runs:', tid), K('reports:', tid),
    K('answers:', tid), K('review:', tid))
  n = n + 1
end

local last
local over = call('XLEN', K('events')) - max
for _, e in ipairs(call('XRANGE', K('events'), '-', '+', 'COUNT', limit)) do
  local old = over > 0
  for i = 1, #e[2], 2 do
    if e[2][i] == 'at' and num(e[2][i + 1]) < raw - event_age then old = true end
  end
  if not old then break end
  over = over - 1
  last = e[1]
  n = n + 1
end
if last then
  local seq = num(string.match(last, '^(%d+)'))
  call('XTRIM', K('events'), 'MINID', F(seq + 1) .. '-0')
  call('HSET', META, 'trimmed', F(seq))
end
return n
