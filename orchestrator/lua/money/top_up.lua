-- needs: answer charge envelope_view money
-- essential
-- alone
-- top_up gives an envelope more. What it was carved from grants that much more
-- as well, up to the day's envelope, which pays it. A hand-off that asks for
-- money is answered in the same step.
-- ARGV: task, house:<date> or house, actor, request key, body hash, tokens, nano-dollars, reason,
--   cap of the day's envelope or '', keep parked 0|1, the hand-off that was seen or '', the answer in a few words
-- Reply: envelope (an envelope_view), and for a task in a hand-off: handoff (id), kind, outcome (answered, kept_parked,
--   too_small or other_reason), lacking (tokens and nano-dollars)
-- Errors: not_found, task_closed, budget_exceeded (the day's envelope), validation_failed (beyond what is
--   counted, or a hand-off of another task), state_conflict (the hand-off that was seen is decided),
--   idempotency_conflict
local MOST_T, MOST_U = 2147483647000, 4000000000000000
local id, by, key, body, t, u, reason = envelope_id(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], num(ARGV[5]), num(ARGV[6]),
  ARGV[7]
local keep, seen, said = ARGV[9] == '1', ARGV[10], ARGV[11]

-- answered shows the envelope and what became of the hand-off, from what is remembered of the request.
local function answered(made)
  local of, hid, kind, outcome, less_t, less_u = string.match(made, '^(%S+) (%S+) (%S+) (%S+) (%d+) (%d+)$')
  of = of or made -- no hand-off waited
  return envelope(of).parent and named{ envelope = envelope_view(of), handoff = hid, kind = kind, outcome = outcome,
    lacking = less_t and { less_t, less_u } } or refuse_no_envelope(of, ARGV[8])
end

local was, err = find_request(key, body)
if err then return err end
if was then return answered(was) end -- @tops-up-once
if ARGV[8] ~= '' and id == 'house:' .. today() then day_envelope(ARGV[8]) end
local e = envelope(id)
if not e.parent then return refuse_no_envelope(id, ARGV[8]) end
if seen ~= '' then
  local h, _, no = load_open_handoff(seen)
  if no then return no end -- @tops-up-undecided
  if h.task ~= id then return refuse('validation_failed', 'field', '/handoffId', 'task', h.task) end
end
if e.closed == '1' then -- @open-envelope
  return refuse('task_closed', 'state', call('HGET', K('task:', id), 'state') or 'closed')
end
-- The envelopes above, except the day's; payer is the day's envelope, or ''.
local above, payer = {}, e.parent
while envelope_task(payer) ~= '' do
  local p = envelope(payer)
  if not p.parent then break end
  above[#above + 1] = p
  payer = p.parent
end
for _, p in ipairs({ e, unpack(above) }) do
  if num(p.granted_t) + t > MOST_T then return refuse('validation_failed', 'field', '/tokens', 'limit', F(MOST_T)) end
  if num(p.granted_u) + u > MOST_U then return refuse('validation_failed', 'field', '/usd', 'limit', F(MOST_U)) end
end
if payer ~= '' then
  local no = check_funds(payer, t, u)
  if no then return no end
  local h = envelope(payer)
  add_amount(h, 'available', -t, -u)
  add_amount(h, 'carved', t, u)
end

for _, p in ipairs(above) do -- @tops-up-above
  for _, column in ipairs({ 'granted', 'carved', 'envelope' }) do add_amount(p, column, t, u) end
end
local before = amount_json(free_amount(e))
for _, column in ipairs({ 'granted', 'available', 'envelope' }) do add_amount(e, column, t, u) end
put(e, 'tops', F(num(e.tops) + 1))
local available = amount_json(free_amount(e))
reset_warnings(e)
emit('budget.topped_up', { task = envelope_task(id), actor = by, reason = reason }, '{"envelope":' .. quote(id) ..
  ',"added":' .. amount_json(t, u) .. ',"available":' .. available .. ',"before":{"available":' .. before ..
  '},"after":{"available":' .. available .. '},"reason":' .. quote(reason) .. '}')
add_ledger_row(id, 'kind', 'top_up', 'cost_t', F(t), 'cost_u', F(u), 'actor', by, 'detail', reason)
if payer ~= '' then warn_budget(payer, envelope(payer)) end
wake('funds ' .. id)

-- lacking is how much of what the run asked for last, and was refused, the envelope still does not cover.
local function lacking(h)
  local need_t, need_u = refused_need(e, h.run)
  local free_t, free_u = free_amount(e)
  return math.max(0, need_t - free_t), math.max(0, need_u - free_u)
end

-- answer_parked answers the hand-off of a task that waits for money. It returns what is remembered of that.
local function answer_parked()
  local task = envelope_task(id) ~= '' and load(K('task:', id))
  if not task or task.state ~= 'handoff' or cancelled_ancestor(task) then return '' end
  local hid = task.handoff
  local h = load(K('handoff:', hid))
  local outcome, less_t, less_u = 'answered', lacking(h)
  if h.kind ~= 'budget' then -- @answers-money-only
    outcome = 'other_reason'
  elseif keep then -- @keeps-parked
    outcome = 'kept_parked'
  elseif less_t > 0 or less_u > 0 then -- @enough-to-go-on
    outcome = 'too_small'
  else
    answer_handoff(hid, h, task, by, quote(said), 'null', '', said)
  end
  return ' ' .. hid .. ' ' .. h.kind .. ' ' .. outcome .. ' ' .. F(less_t) .. ' ' .. F(less_u)
end

local made = id .. answer_parked()
remember(key, body, made, DAY)
return answered(made)
