-- flags: allow-oom
-- needs: view
-- handoffs lists a page of the hand-offs of one state, oldest first, as many as
-- fit into one reply, or one by its id.
-- ARGV: state or hand-off id, limit, score and id of the row that comes before or ''
-- Reply: raw, now (ms), total (number in that state), next (cursor), rows: handoff (a handoff_view), report (the
--   last one), spec
-- Errors: not_found
local key, limit, score, before = K('handoffs:', ARGV[1]), num(ARGV[2]), ARGV[3], ARGV[4]
local rows, size, total, next_cursor = {}, 0, 0, nil
local function add(hid)
  local v, bytes = handoff_view(hid)
  if not v then return false end
  local tid = call('HGET', K('handoff:', hid), 'task')
  local report = call('LINDEX', K('reports:', tid), -1)
  size = size + bytes + (report and #report or 0) + call('HSTRLEN', K('handoff:', hid), 'body')
  rows[#rows + 1] = named{ handoff = v, report = report, spec = call('GET', K('spec:', tid)) }
  return true
end

local function page() return named{ raw = RAW, now = NOW, total = total, next = next_cursor, rows = rows } end

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
  return page()
end
total = call('ZCARD', key)
local at = first()
local ids = call('ZRANGE', key, at, at + limit, 'WITHSCORES')
for i = 1, #ids, 2 do
  if i > 2 * limit or size > MAX_REPLY then
    next_cursor = F(num(ids[i - 1])) .. '.' .. ids[i - 2]
    break
  end
  add(ids[i])
end
return page()
