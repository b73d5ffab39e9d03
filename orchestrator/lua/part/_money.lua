-- Money: an envelope for each task and, where a daily cap is set, one for each
-- day's house. Amounts are integers, tokens (t) and nano-dollars (u); in both
-- granted = available + held + spent + carved, always.
local ENVELOPE = { 'parent', 'closed', 'granted_t', 'granted_u', 'available_t', 'available_u', 'held_t', 'held_u',
  'spent_t', 'spent_u', 'carved_t', 'carved_u', 'total_t', 'total_u', 'envelope_t', 'envelope_u', 'warned_t',
  'warned_u', 'tops', 'cap_t', 'cap_u', 'llm_t', 'llm_u', 'reported_t', 'reported_u', 'charged_t', 'charged_u',
  'unverified_t', 'unverified_u', 'refused' }

-- envelope is the record of one; where there is none its parent is false.
local function envelope(id) return pick(K('env:', id), unpack(ENVELOPE)) end

-- refused_need is what a run asked for last and was refused, 0 once as much was admitted. The field
-- refused holds the run, the number of top-ups at that time, tokens and nano-dollars.
local function refused_need(e, rid)
  local by, need_t, need_u = string.match(e.refused or '', '^(%S+) %d+ (%d+) (%d+)$')
  if by ~= rid then return 0, 0 end
  return num(need_t), num(need_u)
end

-- SUMMED are the fields that lead to all that was spent from an envelope and
-- from what was carved from it. One from before that was kept has no total.
local SUMMED = { 'parent', 'total_t', 'total_u' }

-- new_envelope begins the record of one that is carved from parent or, where
-- that is '', from nothing.
local function new_envelope(e, parent)
  put(e, 'parent', parent, 'total_t', '0', 'total_u', '0')
end

-- add_amount adds to one column of an envelope, in both dimensions.
local function add_amount(e, column, t, u)
  for i, by in ipairs({ t, u }) do
    local field = column .. (i == 1 and '_t' or '_u')
    if by ~= 0 then
      put(e, field, F(num(e[field]) + by))
    end
  end
end

-- free_amount is how much an envelope can still pay. What is unverified is subtracted
-- from the task's own envelope, and from no other.
local function free_amount(e)
  return num(e.available_t) - num(e.unverified_t), num(e.available_u) - num(e.unverified_u) -- @locks-unverified
end

-- chargeable_unverified is how much of what was reported of an envelope its end charges: what
-- could not be charged at the time of the report, up to what is available now.
local function chargeable_unverified(e)
  return math.min(num(e.unverified_t), math.max(0, num(e.available_t))),
    math.min(num(e.unverified_u), math.max(0, num(e.available_u)))
end

-- check_funds is the refusal of what an envelope cannot cover; both dimensions have
-- to, and after an overrun none does until it is made good. back is an envelope
-- that gives back first, in the same step.
local function check_funds(id, t, u, back)
  if t == 0 and u == 0 then return nil end
  local e = envelope(id)
  local have_t, have_u = free_amount(e)
  if back and back.parent == id and back.closed ~= '1' then
    local used_t, used_u = chargeable_unverified(back)
    have_t, have_u = have_t + num(back.available_t) - used_t, have_u + num(back.available_u) - used_u -- @used-of-source
  end
  local less_t = math.max(0, t - have_t) -- @covers-tokens
  local less_u = math.max(0, u - have_u) -- @covers-dollars
  if less_t == 0 and less_u == 0 then return nil end
  local usd = less_u > 0
  return refuse('budget_exceeded', 'envelope', id, 'dimension', usd and 'usd' or 'tokens', 'need', F(usd and u or t),
    'available', F(usd and have_u or have_t), 'held', F(num(usd and e.held_u or e.held_t)),
    'spent', F(num(usd and e.spent_u or e.spent_t)), 'less_t', F(less_t), 'less_u', F(less_u))
end

-- carve gives a new task its envelope, out of that of parent or, where that is
-- '', of nothing. That it can be covered was asked before. t and u are texts.
local function carve(parent, id, order, t, u)
  new_record(K('env:', id), { parent = parent, total_t = '0', total_u = '0', granted_t = t, granted_u = u,
    available_t = t, available_u = u, envelope_t = t, envelope_u = u })
  if parent == '' then return end
  t, u = num(t), num(u)
  local p = envelope(parent)
  add_amount(p, 'available', -t, -u) -- @takes-carved
  add_amount(p, 'carved', t, u) -- @notes-carved
  call('ZADD', K('children:', parent), order, id)
end

local function dollars(n)
  local whole = math.floor(math.abs(n) / 1000000000)
  local text = string.format('%s%d.%09d', n < 0 and '-' or '', whole, math.abs(n) - whole * 1000000000)
  return (string.gsub(string.gsub(text, '0+$', ''), '%.$', ''))
end

-- amount_json writes an amount of both dimensions as JSON.
local function amount_json(t, u) return '{"tokens":' .. F(t) .. ',"usd":' .. dollars(u) .. '}' end

-- envelope_task is the task of an envelope, or '' for the envelope of a day.
local function envelope_task(id) return string.match(id, '^task_.*') or '' end

-- pays_itself reports whether an envelope is that of a task or of a prompt, and not one of a day.
local function pays_itself(id)
  return envelope_task(id) ~= '' or string.sub(id, 1, 7) == 'prompt_' -- @counts-prompts
end

-- add_ledger_row writes a row of the ledger; the event was written just before.
local function add_ledger_row(id, ...)
  call('XADD', K('ledger'), meta.seq .. '-0', 'task', id, 'at', RAW, ...) -- @writes-ledger
  call('ZADD', K('ledger-of:', id), meta.seq, meta.seq)
end

-- add_total_spent adds what was spent to the totals of an envelope and of all that it was
-- carved from, be they open or closed.
local function add_total_spent(e, t, u)
  while e do
    if e.total_u then add_amount(e, 'total', t, u) end
    e = e.parent and e.parent ~= '' and pick(K('env:', e.parent), unpack(SUMMED)) -- @sums-above
  end
end

-- charge_reported charges a closed envelope with what was reported of it before.
local function charge_reported(id, e)
  local t, u = chargeable_unverified(e)
  if t == 0 and u == 0 then return end
  add_amount(e, 'unverified', -t, -u)
  add_amount(e, 'available', -t, -u)
  add_amount(e, 'spent', t, u)
  add_total_spent(e, t, u)
  add_total('spent_t', t)
  add_total('spent_u', u)
  emit('budget.unverified', { task = envelope_task(id), actor = 'server', reason = 'charged_since' },
    '{"envelope":' .. quote(id) .. ',"usage":' .. amount_json(-t, -u) .. ',"reason":"charged_since"}')
  add_ledger_row(id, 'cost_t', F(t), 'cost_u', F(u), 'held_t', '0', 'held_u', '0', 'kind', 'unverified', 'unverified_t',
    F(-t), 'unverified_u', F(-u), 'detail', 'charged_since')
end

-- return_rest passes what is available in a closed envelope, even if it is negative,
-- to the one that it was carved from, and on through closed ones. What
-- was reported of a closed one is charged to it before. It returns the envelope
-- where the rest ends up.
local function return_rest(id, e)
  while e.closed == '1' do
    charge_reported(id, e) -- @charges-reported
    local p = e.parent ~= '' and envelope(e.parent)
    if not (p and p.parent) then break end -- carved from none, or from one that was deleted long ago
    local t, u = num(e.available_t), num(e.available_u)
    add_amount(e, 'granted', -t, -u)
    add_amount(e, 'available', -t, -u)
    add_amount(p, 'carved', -t, -u)
    add_amount(p, 'available', t, u)
    id, e = e.parent, p
  end
  return id, e
end

-- payer_of is the envelope that pays for what is spent in one: itself, or the
-- nearest open one above.
local function payer_of(id, e)
  local _, p = return_rest(id, e)
  return p
end

local function close_envelope(id)
  local e = envelope(id)
  if not e.parent then return end
  put(e, 'closed', '1') -- @closes-envelope
  return_rest(id, e) -- @returns-rest
end

-- date_of is the UTC date of an instant in ms.
local function date_of(ms)
  local z = math.floor(ms / DAY) + 719468 -- days since the first of March of the year 0
  local era = math.floor(z / 146097)
  local day = z - era * 146097
  local year = math.floor((day - math.floor(day / 1460) + math.floor(day / 36524) - math.floor(day / 146096)) / 365)
  day = day - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local month = math.floor((5 * day + 2) / 153)
  day = day - math.floor((153 * month + 2) / 5) + 1
  month = month < 10 and month + 3 or month - 9
  return string.format('%04d-%02d-%02d', year + era * 400 + (month <= 2 and 1 or 0), month, day)
end

-- today is the date by the server's clock.
local function today() return date_of(raw) end

-- day_envelope names the envelope of the day, which a new root task is carved from;
-- cap is "tokens nano-dollars", or '' where there is none and nothing is checked.
local function day_envelope(cap)
  if cap == '' then return '' end
  local id = 'house:' .. today()
  local e = envelope(id)
  if not e.parent then
    new_envelope(e, '')
    call('ZADD', K('houses'), NOW, id)
  end
  local t, u = string.match(cap, '^(%d+) (%d+)$')
  t, u = num(t) - num(e.cap_t), num(u) - num(e.cap_u)
  for _, column in ipairs({ 'cap', 'granted', 'available', 'envelope' }) do add_amount(e, column, t, u) end
  return id
end
