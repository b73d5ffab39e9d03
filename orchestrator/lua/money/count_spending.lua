-- flags: allow-oom
-- needs: money
-- count_spending adds the next rows of the ledger to the totals of their UTC day, by role and model,
-- and by label. It is the only script that writes these totals, and it takes each row once.
-- alone
-- ARGV: limit, most pairs of role and model of a day, most labels of a day
-- Reply: number of rows looked at; fewer than limit when nothing is left
local limit, MOST_PAIRS, MOST_LABELS = num(ARGV[1]), num(ARGV[2]), num(ARGV[3])
local OTHER = '(other)'

-- sums are what this script adds, by key and field. Lua counts exactly to 2^53, so a large sum is
-- written before it grows further.
local sums = {}
local function add(key, field, n)
  local of = sums[key] or {}
  sums[key] = of
  local sum = of[field] or 0
  if math.abs(sum) > 4000000000000000 then
    call('HINCRBY', key, field, F(sum))
    sum = 0
  end
  of[field] = sum + n
end

-- known_name returns the first of names that has totals already in key, or may get some: the first
-- most names of a day are kept, those that stand for others as well, and the last one always is.
local seen = {}
local function known_name(key, most, names)
  for i, name in ipairs(names) do
    local mark = key .. ' ' .. name
    if seen[mark] or call('HEXISTS', key, 'calls ' .. name) == 1 then
      seen[mark] = true
      return name
    end
    local size = num(call('HGET', key, 'names'))
    if size < (i == 1 and most or 2 * most) or i == #names then -- @bounds-spending
      call('HINCRBY', key, 'names', 1)
      call('HSET', key, 'calls ' .. name, '0')
      seen[mark] = true
      return name
    end
  end
end

-- amounts are the figures of a row, by name.
local function amounts(row)
  local all = { calls = row.kind == 'call' and row.outcome ~= 'undispatched' and 1 or 0 }
  for _, dim in ipairs({ 't', 'u' }) do
    local cost = num(row['cost_' .. dim])
    all['spent_' .. dim] = cost -- @sums-spending
    all['unverified_' .. dim] = num(row['unverified_' .. dim])
    all['uncertain_' .. dim] = row.kind == 'call' and row.outcome == 'uncertain' and cost or 0
    all['returned_' .. dim] = row.kind == 'correction' and math.max(0, -cost) or 0
  end
  return all
end

local tasks = {} -- role and labels
local function task_of(id)
  local key = envelope_task(id) ~= '' and K('task:', id) or K('env:', id) -- that of a prompt names the role
  tasks[id] = tasks[id] or call('HMGET', key, 'role', 'labels')
  return tasks[id][1] or '', tasks[id][2] or ''
end

local function count_row(row)
  if row.kind == 'top_up' or not pays_itself(row.task or '') then return end -- @spends-no-top-up
  local day = date_of(num(row.at))
  local role, labels = task_of(row.task)
  local model = row.model or ''
  local figures = amounts(row)
  local key = K('spending:', day)
  call('ZADD', K('spending-days'), 'NX', NOW, day)
  local pair = known_name(key, MOST_PAIRS, { role .. ' ' .. model, role .. ' ' .. OTHER, OTHER .. ' ' .. OTHER })
  for figure, n in pairs(figures) do
    if n ~= 0 then add(key, figure .. ' ' .. pair, n) end
  end
  key = K('spending-by-label:', day)
  for label in string.gmatch(labels, '[^\n]+') do
    local name = string.match(label, '^[^=]*=')
    local as = known_name(key, MOST_LABELS, { label, name .. OTHER, '=' .. OTHER })
    for figure, n in pairs(figures) do
      if n ~= 0 then add(key, figure .. ' ' .. as, n) end
    end
  end
end

local last
local rows = call('XRANGE', K('ledger'), F(num(call('HGET', META, 'spending')) + 1) .. '-0', '+', 'COUNT', limit)
for _, entry in ipairs(rows) do
  local row = {}
  for i = 1, #entry[2], 2 do row[entry[2][i]] = entry[2][i + 1] end
  count_row(row)
  last = string.match(entry[1], '^%d+')
end
for key, of in pairs(sums) do
  for field, n in pairs(of) do call('HINCRBY', key, field, F(n)) end
end
if last then call('HSET', META, 'spending', last) end -- @counts-spending-once
return #rows
