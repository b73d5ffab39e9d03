-- needs: facts money
-- The books: what changes money is an event and a row of the ledger, which has
-- the number of that event. _money.lua writes the rows.

-- spending_facts is what an envelope has spent, holds for calls and has left, after a comma.
local function spending_facts(e)
  return ',"spent":' .. amount_json(num(e.spent_t), num(e.spent_u)) .. ',"held":' ..
    amount_json(num(e.held_t), num(e.held_u)) .. ',"left":' .. amount_json(free_amount(e))
end

-- warn_budget tells once that half, four fifths and nearly all of an envelope are
-- spent or carved, in each dimension apart.
local LEVELS = { 95, 80, 50 }
local function spent_percent(e, dim)
  local granted = num(e['granted_' .. dim])
  if granted <= 0 then return 0 end
  local share = (num(e['spent_' .. dim]) + num(e['carved_' .. dim])) / granted
  for _, percent in ipairs(LEVELS) do
    if share >= percent / 100 then return percent end
  end
  return 0
end

-- envelope_holder is the task of an envelope with the run and the agent that have it now.
local function envelope_holder(id)
  local task = envelope_task(id)
  local t = task ~= '' and pick(K('task:', task), 'state', 'run')
  if not t or t.state ~= 'leased' then return { task = task } end
  return { task = task, run = t.run, agent = pick(K('run:', t.run), 'agent').agent }
end

local function warn_budget(id, e)
  if envelope_task(id) == '' and string.sub(id, 1, 6) ~= 'house:' then return end -- that of a session
  for _, dim in ipairs({ 'u', 't' }) do
    local percent, field = spent_percent(e, dim), 'warned_' .. dim
    if percent > num(e[field]) then -- @warns-once
      put(e, field, F(percent))
      local show = dim == 'u' and dollars or F
      local who = envelope_holder(id)
      emit('budget.warning', { task = who.task, run = who.run, agent = who.agent, actor = 'server' },
        '{"envelope":' .. quote(id) .. ',"dimension":"' .. (dim == 'u' and 'usd' or 'tokens') .. '","percent":' ..
        F(percent) .. ',"spent":' .. show(num(e['spent_' .. dim])) .. ',"carved":' .. show(num(e['carved_' .. dim])) ..
        ',"granted":' .. show(num(e['granted_' .. dim])) .. ',"held":' .. show(num(e['held_' .. dim])) ..
        ',"left":' .. show((select(dim == 'u' and 2 or 1, free_amount(e)))) .. task_facts(id) .. '}')
    end
  end
end

-- reset_warnings forgets the warnings that money which came since has made untrue.
local function reset_warnings(e)
  for _, dim in ipairs({ 'u', 't' }) do
    local percent, field = spent_percent(e, dim), 'warned_' .. dim
    if percent < num(e[field]) then
      put(e, field, F(percent))
    end
  end
end

local function is_locked(e)
  local t, u = free_amount(e)
  return t < 0 or u < 0
end

-- charge books what was spent; held of it was reserved. The cost counts as spending of the envelope
-- that made the call. If that envelope is closed, the nearest open one above it pays. row are
-- further fields of the ledger's row, whose event was written just before. It returns the envelope
-- that paid.
local function charge(id, e, run, held_t, held_u, cost_t, cost_u, ...)
  local late = e.closed == '1'
  add_ledger_row(id, 'run', run, 'cost_t', F(cost_t), 'cost_u', F(cost_u), 'late', late and '1' or '0', ...)
  add_amount(e, 'spent', cost_t, cost_u)
  if cost_t ~= 0 or cost_u ~= 0 then add_total_spent(e, cost_t, cost_u) end -- @sums-spent
  add_total(cost_t < 0 and 'returned_t' or 'spent_t', math.abs(cost_t))
  add_total(cost_u < 0 and 'returned_u' or 'spent_u', math.abs(cost_u))
  add_amount(e, 'available', held_t - cost_t, held_u - cost_u)
  local payer, p = return_rest(id, e) -- @passes-rest-on
  local over_t, over_u = cost_t > held_t and num(p.available_t) < 0, cost_u > held_u and num(p.available_u) < 0
  local facts = '{"envelope":' .. quote(payer) .. ',"cost":' .. amount_json(cost_t, cost_u) ..
    ',"reserved":' .. amount_json(held_t, held_u)
  if over_t or over_u then
    emit('budget.overrun', { task = envelope_task(payer), run = payer == id and run or '', actor = 'server' },
      facts .. ',"available":' .. amount_json(free_amount(p)) .. spending_facts(p) ..
        task_facts(payer) .. '}')
  end
  if late then emit('budget.late', { task = envelope_task(id), run = run, actor = 'server' }, facts .. '}') end
  warn_budget(payer, p) -- a closed envelope warns nobody; the envelope that pays for it may
  return p
end
