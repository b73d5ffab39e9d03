-- flags: allow-oom
-- needs: page view
-- handoffs lists a page of the hand-offs of one state, oldest first, as many as
-- fit into one reply, or one by its id. With an assignee a page looks at 500 hand-offs at most.
-- alone
-- ARGV: state or hand-off id, limit, score and id of the row that comes before or '', assignee or ''
-- Reply: raw, now (ms), total (number in that state), next (cursor), rows: handoff (a handoff_view), report (the
--   last one), spec
-- Errors: not_found
local LOOKS = 500
local key, limit, score, before, assignee = K('handoffs:', ARGV[1]), num(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
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

if string.sub(ARGV[1], 1, 8) == 'handoff_' then
  if not add(ARGV[1]) then return refuse('not_found', 'kind', 'hand-off') end
  return page()
end
total = call('ZCARD', key)

-- is_meant reports whether a hand-off is for the assignee that was asked for.
local function is_meant(hid)
  if assignee == '' then return true end
  local h = call('HMGET', K('handoff:', hid), 'assignee', 'task')
  return (h[1] or h[2] and call('HGET', K('task:', h[2]), 'assignee')) == assignee -- @same-assignee
end

local at, looks = first_after(key, score, before), assignee == '' and limit or LOOKS
local ids = call('ZRANGE', key, at, at + looks, 'WITHSCORES')
for i = 1, #ids, 2 do
  if i > 2 * looks or #rows == limit or size > MAX_REPLY then
    next_cursor = F(num(ids[i - 1])) .. '.' .. ids[i - 2]
    break
  end
  if is_meant(ids[i]) then add(ids[i]) end
end
return page()
