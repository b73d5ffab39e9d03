-- flags: allow-oom
-- needs: page view
-- client_tasks pages through the tasks that clients have submitted at endpoints, the latest change first. It looks at
-- 2,000 tasks at most, so that total can be lower than it is.
-- alone
-- ARGV: client or *, role or '', index of a context or '', limit, score and id of the row that comes before or '',
--   earliest change (raw ms) or 0, instance or '', with emissions 0|1, then the states that are asked for: of a task,
--   with failed:rejected beside failed for those that agents have rejected, or handoff:KIND; none: all
-- Reply: total, score and id of the last row or '', rows: a view of the task each
-- Errors: not_found (a task that was lost meanwhile)
local client, role, context, limit, since = ARGV[1], ARGV[2], ARGV[3], num(ARGV[4]), num(ARGV[7])
local MOST, CHUNK = 2000, 200 -- rows
local wanted
for i = 10, #ARGV do
  wanted = wanted or {}
  wanted[ARGV[i]] = true
end

local function state_matches(t)
  if not wanted then return true end
  if t[1] == 'failed' and call('HGET', K('run:', t[5]), 'class') == 'rejected' then -- @rejected-apart
    return wanted['failed:rejected']
  end
  if t[1] ~= 'handoff' then return wanted[t[1]] end
  return wanted['handoff:' .. call('HGET', K('handoff:', t[2]), 'kind')]
end

-- matches reports whether a task is one of those that are asked for. t has its fields in the order of FIELDS.
local FIELDS = { 'state', 'handoff', 'role', 'instance', 'run' }
local function matches(t)
  return t[1] and (role == '' or t[3] == role) -- @pool-sees-own
    and (ARGV[8] == '' or t[4] == ARGV[8]) -- @instance-sees-own
    and state_matches(t)
end

local of = client -- @client-sees-own
local key = context ~= '' and K('by-context:', of .. ' ' .. context) or K('by-client:', of)
local start, size = first_after(key, ARGV[5], ARGV[6]), 0
local rows, total, last, more = {}, 0, { '', '' }, false

-- show adds a task to the page, or notes that there are more than the page has.
local function show(id, score)
  if #rows == limit or size > MAX_REPLY then
    more = true
    return
  end
  local shown = ARGV[9] == '1' and call('HGET', K('task:', id), 'emitted_bytes')
  rows[#rows + 1] = task_view(id, false, shown and 0 or nil) -- @lists-emissions
  size = size + num(shown) + call('STRLEN', K('in:', id)) + call('STRLEN', K('out:', id))
  last = { score, id }
end

local function look(at, id, score)
  if since > 0 and -num(score) < since then return false end
  if matches(call('HMGET', K('task:', id), unpack(FIELDS))) then
    total = total + 1
    if at >= start then show(id, score) end
  end
  return true
end

for from = 0, MOST - 1, CHUNK do
  local chunk = call('ZRANGE', key, from, from + CHUNK - 1, 'WITHSCORES')
  for i = 1, #chunk, 2 do
    if not look(from + (i - 1) / 2, chunk[i], F(num(chunk[i + 1]))) then
      chunk = {}
      break
    end
  end
  if #chunk < 2 * CHUNK then break end
end
if not more then last = { '', '' } end
return named{ total = total, score = last[1], id = last[2], rows = rows }
