-- flags: allow-oom
-- needs: money
-- count adds the next runs that have ended and the next rows of the ledger to the totals by role
-- and model. It is the only script that writes them, and each run and row is taken once.
-- alone
-- ARGV: limit, most roles, most models, upper bounds (ms) of the durations, in rising order
-- Reply: number of runs or rows counted, whichever is more; fewer than limit when nothing is left
local limit, most = num(ARGV[1]), { role = num(ARGV[2]), model = num(ARGV[3]) }
local sums = {} -- what this script adds, by field
local function add(field, n)
  sums[field] = (sums[field] or 0) + n
end

-- label is the name under which a role or a model is counted: its own, or 'other' when there
-- are too many names already. Agents choose names, so their number is bounded.
local names = {}
local function label(kind, name)
  if name == '' then return name end
  name = string.sub(name, 1, 64)
  local field = kind .. ' ' .. name
  if names[field] then return names[field] end
  local as = name
  if call('HEXISTS', K('totals'), field) == 0 then
    if num(call('HGET', K('totals'), kind .. 's')) >= most[kind] then -- @bounds-labels
      as = 'other'
    else
      call('HSET', K('totals'), field, '1')
      call('HINCRBY', K('totals'), kind .. 's', '1')
    end
  end
  names[field] = as
  return as
end

local roles = {}
local function role_of(tid)
  local key = envelope_task(tid) ~= '' and K('task:', tid) or K('env:', tid) -- that of a prompt names the role
  roles[tid] = roles[tid] or label('role', call('HGET', key, 'role') or '')
  return roles[tid]
end

local function bound_of(ms)
  for i = 4, #ARGV do
    if ms <= num(ARGV[i]) then return ARGV[i] end
  end
  return 'inf'
end

local function count_run(rid)
  local r = call('HMGET', K('run:', rid), 'task', 'class', 'started', 'ended')
  if not r[1] or not r[2] then return end -- deleted since, or its end was never written
  local role, took = role_of(r[1]), math.max(0, num(r[4]) - num(r[3]))
  add('ended ' .. r[2] .. ' ' .. role, 1)
  add('took ' .. bound_of(took) .. ' ' .. role, 1)
  add('ms ' .. role, took)
end

-- count_row counts what a row of the ledger charged. What a correction gave back is a total of its
-- own, because a counter never falls.
local function count_row(row)
  local task = row.task or ''
  if row.kind == 'top_up' or not pays_itself(task) then return end -- @counts-charges
  local role, model = role_of(task), label('model', row.model or '')
  for _, dim in ipairs({ 't', 'u' }) do
    local n = num(row['cost_' .. dim]) -- sums of many could be more than a number of Lua holds exactly
    local field = (n < 0 and 'returned_' or 'spent_') .. dim .. ' ' .. role .. ' ' .. model
    if n ~= 0 then call('HINCRBY', K('totals'), field, F(math.abs(n))) end
  end
end

local ended = call('LRANGE', K('uncounted'), 0, limit - 1)
for _, rid in ipairs(ended) do count_run(rid) end
if #ended > 0 then call('LTRIM', K('uncounted'), #ended, -1) end -- @counts-run-once

local after, last = num(call('HGET', K('totals'), 'ledger'))
local rows = call('XRANGE', K('ledger'), F(after + 1) .. '-0', '+', 'COUNT', limit)
for _, entry in ipairs(rows) do
  local row = {}
  for i = 1, #entry[2], 2 do row[entry[2][i]] = entry[2][i + 1] end
  count_row(row)
  last = string.match(entry[1], '^%d+')
end
if last then call('HSET', K('totals'), 'ledger', last) end -- @counts-row-once

for field, n in pairs(sums) do call('HINCRBY', K('totals'), field, F(n)) end
return math.max(#ended, #rows)
