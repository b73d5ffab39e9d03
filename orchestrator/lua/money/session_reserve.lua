-- needs: capability money quota sessionmoney settle
-- session_reserve admits a call of a model by an agent session: it takes the bound of its price out of the envelope
-- of the prompt that the session works on.
-- ARGV: prompt, hash of the capability, call id, nonce, tool, tokens, nano-dollars, version of the prices, timeout ms,
--   most calls of a prompt at once, model or '', cap of the day's envelope or ''
-- Reply: available (nano-dollars)
-- Errors: session_capability_invalid; paused, budget_exceeded, call_in_progress, state_conflict, quota_exceeded
local pid, cid, nonce, need_t, need_u = ARGV[1], ARGV[3], ARGV[4], num(ARGV[6]), num(ARGV[7])
local p, _, err = capability(pid, ARGV[2])
if err then return err end
local e, h = envelope(pid), load_call(pid, cid)
if h.state == 'open' then
  if h.nonce ~= nonce then return refuse('call_in_progress') end -- @session-call-of-another
  return named{ available = num(e.available_u) }
elseif h.state then
  return refuse('state_conflict.result_not_kept', 'call', cid, 'outcome', h.outcome)
end
if paused ~= '' then return refuse('paused') end -- @session-reserves-none-paused
local more_t = math.max(0, need_t - num(e.available_t))
local no = check_quota('open_calls', num(ARGV[10]), call('ZCARD', K('calls:', pid)), 1)
  or session_money.check_tokens(pid, more_t, ARGV[12])
if no then return no end
session_money.add_tokens(pid, more_t) -- @tokens-come-first
no = check_funds(pid, need_t, need_u) -- @session-call-is-covered
if no then return no end

add_amount(e, 'available', -need_t, -need_u) -- @session-takes-reserved
add_amount(e, 'held', need_t, need_u)
add_total('held_t', need_t)
add_total('held_u', need_u)
local ends = now + num(ARGV[9]) + LINGER
put(new_record(h[1], {}), 'task', pid, 'run', '', 'agent', p.agent, 'session', p.session, 'tool', ARGV[5],
  'nonce', nonce,
  'hash', '', 'need_t', ARGV[6], 'need_u', ARGV[7], 'version', ARGV[8], 'ext', '0', 'keyed', '0', 'deadline', F(ends),
  'state', 'open', 'token', '', 'at', RAW, 'model', ARGV[11])
call('ZADD', K('holds'), F(ends), pid .. ':' .. cid) -- @session-call-ends
call('ZADD', K('calls:', pid), F(ends), cid)
return named{ available = num(e.available_u) }
