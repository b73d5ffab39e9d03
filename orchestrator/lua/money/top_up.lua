-- needs: charge envelope_view money
-- essential
-- top_up gives an envelope more. What it was carved from grants that much more
-- as well, up to the day's envelope, which pays it.
-- ARGV: task, house:<date> or house, actor, request key, body hash, tokens, nano-dollars, reason,
--   cap of the day's envelope or ''
-- Reply: as envelope.lua
-- Errors: not_found, task_closed, budget_exceeded (the day's envelope), validation_failed (beyond what is
--   counted), idempotency_conflict
local MOST_T, MOST_U = 2147483647000, 4000000000000000
local id, by, key, body, t, u, reason = envelope_id(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], num(ARGV[5]), num(ARGV[6]),
  ARGV[7]
local was, err = find_request(key, body)
if err then return err end
if was then return envelope(was).parent and envelope_view(was) or refuse_no_envelope(was, ARGV[8]) end -- @tops-up-once
if ARGV[8] ~= '' and id == 'house:' .. today() then day_envelope(ARGV[8]) end
local e = envelope(id)
if not e.parent then return refuse_no_envelope(id, ARGV[8]) end
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
e.tops = F(num(e.tops) + 1)
put(e, 'tops', e.tops)
local available = amount_json(free_amount(e))
reset_warnings(e)
emit('budget.topped_up', { task = envelope_task(id), actor = by, reason = reason }, '{"envelope":' .. quote(id) ..
  ',"added":' .. amount_json(t, u) .. ',"available":' .. available .. ',"before":{"available":' .. before ..
  '},"after":{"available":' .. available .. '},"reason":' .. quote(reason) .. '}')
add_ledger_row(id, 'kind', 'top_up', 'cost_t', F(t), 'cost_u', F(u), 'actor', by, 'detail', reason)
if payer ~= '' then warn_budget(payer, envelope(payer)) end
wake('funds ' .. id)
remember(key, body, id, DAY)
return envelope_view(id)
