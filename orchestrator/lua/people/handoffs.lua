-- flags: allow-oom
-- needs: view
-- handoffs lists a page of the hand-offs of one state, oldest first, as many as
-- fit into one reply, or one by its id.
-- ARGV: state or hand-off id, limit, score and id of the row that comes before or ''
-- Reply: {raw ms, now ms, number in that state, next cursor or '', row...}, row = {hand-off view, last report, spec}
-- Errors: not_found
local key, limit, score, before = K('handoffs:', ARGV[1]), num(ARGV[2]), ARGV[3], ARGV[4]
local out, size = { RAW, NOW, 0, '' }, 0
local function add(hid)
  local v = handoff_view(hid)
  if not v then return false end
  local tid = call('HGET', K('handoff:', hid), 'task')
  local report = call('LINDEX', K('reports:', tid), -1)
  size = size + (report and #report or 0) + (v[3] and #v[3] or 0) + (v[5] and #v[5] or 0) +
    call('HSTRLEN', K('handoff:', hid), 'body')
  out[#out + 1] = { v, report, call('GET', K('spec:', tid)) }
  return true
end

-- first is the place of the first row after the cursor. Those of one instant
-- stand in the order of their ids, so it is found by halving.
local function first()
  if before == '' then return 0 end
  local low, high = call('ZCOUNT', key, '-inf', '(' .. score), call('ZCOUNT', key, '-inf', score)
  while low < high do
    local mid = math.floor((low + high) / 2)
    if call('ZRANGE', key, mid, mid)[1] <= before then
      low = mid + 1
    else
      high = mid
    end
  end
  return low
end

if string.sub(ARGV[1], 1, 8) == 'handoff_' then
  if not add(ARGV[1]) then return refuse('not_found', 'kind', 'hand-off') end
  return out
end
out[3] = call('ZCARD', key)
local at = first()
local ids = call('ZRANGE', key, at, at + limit, 'WITHSCORES')
for i = 1, #ids, 2 do
  if i > 2 * limit or size > MAX_REPLY then
    out[4] = F(num(ids[i - 1])) .. '.' .. ids[i - 2]
    break
  end
  add(ids[i])
end
return out
