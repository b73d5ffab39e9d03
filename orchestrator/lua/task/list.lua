-- flags: allow-oom
-- list pages through tasks, newest first. It walks the smallest set named and
-- checks the other filters by membership; a page looks at 2,000 at most.
-- alone
-- ARGV: limit, cursor (order, exclusive) or '', since (raw ms) or 0,
--   number of states, states..., then further set names (tasks, by-role:..., by-label:..., children:...)
-- Reply: next (order), rows: id, record, spec, envelope
local limit, cursor, since = num(ARGV[1]), ARGV[2], num(ARGV[3])
local states, sets = {}, {}
for i = 5, 4 + num(ARGV[4]) do states[#states + 1] = K('by-state:', ARGV[i]) end
for i = 5 + num(ARGV[4]), #ARGV do sets[#sets + 1] = K(ARGV[i]) end

-- The walk goes over the smaller of: the states, all at once, or the smallest
-- other set.
local function size(keys)
  local n = 0
  for _, key in ipairs(keys) do n = n + call('ZCARD', key) end
  return n
end
local sources, fewest = states, #states > 0 and size(states)
for _, key in ipairs(sets) do
  local n = size({ key })
  if not fewest or n < fewest then sources, fewest = { key }, n end
end
local wanted
if #states > 0 and sources ~= states then
  wanted = {}
  for i = 5, 4 + num(ARGV[4]) do wanted[ARGV[i]] = true end
end
local heads = {}
local function advance(i, below)
  local max = below == '' and '+inf' or '(' .. below
  local got = call('ZREVRANGEBYSCORE', sources[i], max, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  heads[i] = got[1] and { got[1], got[2] } or false
end
for i = 1, #sources do advance(i, cursor) end

local function member(id)
  if wanted and not wanted[call('HGET', K('task:', id), 'state')] then return false end
  for _, key in ipairs(sets) do
    if not call('ZSCORE', key, id) then return false end
  end
  return true
end

local rows, last, looked = {}, '', 0
local function page(next_cursor) return named{ next = next_cursor, rows = rows } end
while true do
  local pick
  for i = 1, #sources do
    if heads[i] and (not pick or num(heads[i][2]) > num(heads[pick][2])) then pick = i end
  end
  if not pick then return page() end
  if #rows == limit or looked >= 2000 then return page(last) end
  local id
  id, last = heads[pick][1], F(num(heads[pick][2]))
  looked = looked + 1
  if member(id) then
    local t = call('HGETALL', K('task:', id))
    local created = num(call('HGET', K('task:', id), 'created'))
    if created < since then return page() end
    rows[#rows + 1] = named{ id = id, record = t, spec = call('GET', K('spec:', id)),
      envelope = call('HGETALL', K('env:', id)) }
  end
  advance(pick, last)
end
