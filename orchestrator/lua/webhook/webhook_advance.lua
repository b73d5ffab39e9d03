-- flags: allow-oom
-- needs: webhook
-- webhook_advance says how far a target was served under a claim, by
-- compare-and-set on claim and position. taken: it took an event, and the claim
-- goes on. passed: nothing was for it, and the claim is given back. failed: it
-- is tried again after a while, and given up after a day of failures that were
-- MOST or more. gone: it wants nothing any more. gap: the next event for it
-- is not kept any more, and the claim goes on. The same step again changes
-- nothing.
-- ARGV: webhook id, claim, position before, position after, outcome, HTTP status, error, ms until
--   the next try, ms a claim lasts
-- Reply: the state that this leaves the target in
-- Errors: not_found, state_conflict (the claim is over)
local MOST = 20
local id, claim, from, to, outcome, status, why = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local w = load(K('webhook:', id))
if not w then return refuse('not_found', 'kind', 'webhook') end
local step = table.concat({ claim, from, to, outcome }, ' ')
if w.step == step then return w.state end -- @same-step
if w.claim ~= claim or w.cursor ~= from then
  return refuse('state_conflict.webhook_claim_over', 'kind', 'webhook', 'cause', 'claim_over')
end

local due = now
if outcome == 'taken' or outcome == 'gap' then
  due = now + num(ARGV[9])
else
  put(w, 'claim', '')
end
if outcome == 'taken' then
  put(w, 'failures', '0', 'failing', '0', 'status', status, 'error', '')
elseif outcome == 'gap' then
  emit_webhook('webhook.gap', id, w, 'server', ',"missedAfter":' .. F(num(from)) .. ',"missedUpTo":' .. F(num(to)))
elseif outcome == 'failed' or outcome == 'gone' then
  put(w, 'failures', F(num(w.failures) + 1), 'status', status, 'error', why)
  if num(w.failing) == 0 then put(w, 'failing', NOW) end
  due = now + num(ARGV[8])
  if outcome == 'gone' then
    put(w, 'state', 'off')
  elseif num(w.failures) >= MOST and now - num(w.failing) >= DAY then
    put(w, 'state', 'dead')
  end
  if w.state ~= 'active' then
    due = NEVER
    emit_webhook('webhook.dead', id, w, 'server', ',"state":' .. quote(w.state) .. ',"failures":' .. w.failures ..
      ',"status":' .. F(num(status)) .. ',"error":' .. quote(why))
  end
end
put(w, 'claim', w.claim, 'cursor', to, 'failures', w.failures, 'failing', w.failing or '0', 'state', w.state,
  'step', step)
call('ZADD', K('webhooks'), F(due), id)
return w.state
