-- needs: money charge queue
-- Calls that cost money: their reservations, and how these end.
local LAG = 2000 -- after its timeout a call has ended: the answer to reserve may have come this late
local LINGER = 10000 -- and its settlement has come after this long, or never will
local CALL = { 'task', 'run', 'tool', 'nonce', 'hash', 'need_t', 'need_u', 'version', 'ext', 'keyed', 'deadline',
  'token', 'state', 'outcome', 'cost_t', 'cost_u', 'kept', 'model', 'row', 'told', 'agent', 'session' }

local function load_call(tid, cid) return pick(K('hold:', tid .. ':' .. cid), unpack(CALL)) end

-- unlist_call takes a call off the lists of those under way. A task that waits for
-- what acts outside looks again.
local function unlist_call(tid, cid, h)
  call('ZREM', K('holds'), tid .. ':' .. cid)
  call('ZREM', K('calls:', tid), cid)
  local under_way = h.ext == '1' and call_now('ZREM', K('inflight:', tid), cid) == 1
  if under_way then requeue_after_calls(tid) end -- @frees-after-call
end

local function emit_call(tid, h, cid, outcome, cost_t, cost_u, detail, correction)
  local of_session = h.session and ',"promptId":' .. quote(tid) .. ',"sessionId":' .. quote(h.session) or ''
  emit('tool.called', { task = envelope_task(tid), run = h.run, agent = h.agent, token = h.token,
    actor = h.session and h.agent or h.run }, '{"tool":' .. quote(h.tool) .. of_session .. ',"callId":' .. quote(cid) ..
    ',"outcome":"' .. outcome .. '","cost":' .. amount_json(cost_t, cost_u) ..
    ',"reserved":' .. amount_json(num(h.need_t), num(h.need_u)) .. ',"detail":' .. quote(detail) ..
    (correction and ',"correction":true}' or '}'))
end

-- add_run_spending keeps what a run has spent; what the LLM proxy saw is not charged
-- again when the agent reports it, be it in a later run of the same session. A call that
-- failed is not one of the same calls in a row any more.
local function add_run_spending(h, t, u)
  if h.session then return end
  local r = pick(K('run:', h.run), 'task', 'spent_t', 'spent_u', 'llm_t', 'llm_u', 'call', 'same', 'row')
  if not r.task then return end
  local failed = h.outcome == 'failed' or h.outcome == 'undispatched'
  if failed and h.row and h.row == r.row and r.call == 'paid ' .. h.hash then -- @failed-is-no-repeat
    put(r, 'same', F(num(r.same) - 1))
  end
  add_amount(r, 'spent', t, u)
  if string.sub(h.tool, 1, 4) ~= 'llm_' then return end
  add_amount(r, 'llm', t, u)
  add_amount(envelope(r.task), 'llm', t, u)
end

-- settle ends an open reservation: what was held is available again, what the
-- call cost is spent. It returns the envelope that paid.
local function settle(tid, cid, h, outcome, cost_t, cost_u, detail)
  local e = envelope(tid)
  local held_t, held_u = num(h.need_t), num(h.need_u)
  if outcome == 'uncertain' then cost_t, cost_u = held_t, held_u end -- @charges-uncertain
  if outcome == 'undispatched' then cost_t, cost_u = 0, 0 end -- @undispatched-is-free
  unlist_call(tid, cid, h)
  put(h, 'state', 'settled', 'outcome', outcome, 'cost_t', F(cost_t), 'cost_u', F(cost_u))
  call('PEXPIRE', h[1], F(DAY))
  emit_call(tid, h, cid, outcome, cost_t, cost_u, detail)
  add_amount(e, 'held', -held_t, -held_u) -- @frees-held
  add_total('held_t', -held_t)
  add_total('held_u', -held_u)
  -- whatever was there before this was counted
  if call('ZCARD', K('holds')) == 0 then call('HDEL', K('sums'), 'held_t', 'held_u') end
  add_run_spending(h, cost_t, cost_u)
  local p = charge(tid, e, h.run, held_t, held_u, cost_t, cost_u, 'kind', 'call', 'call', cid, 'tool', h.tool,
    'model', h.model or '', 'outcome', outcome, 'held_t', h.need_t, 'held_u', h.need_u, 'version', h.version,
    'detail', detail)
  if outcome == 'uncertain' then
    emit('budget.uncertain', { task = envelope_task(tid), run = h.run, agent = h.agent, token = h.token,
      actor = 'server' },
      '{"tool":' .. quote(h.tool) .. ',"callId":' .. quote(cid) .. ',"cost":' .. amount_json(cost_t, cost_u) .. '}')
  end
  return p
end

-- correct_call books a true figure where nobody knew one, up or down.
local function correct_call(tid, cid, h, outcome, cost_t, cost_u, detail)
  local more_t, more_u = cost_t - num(h.cost_t), cost_u - num(h.cost_u) -- @corrects-difference
  put(h, 'outcome', outcome, 'cost_t', F(cost_t), 'cost_u', F(cost_u))
  emit_call(tid, h, cid, outcome, cost_t, cost_u, detail, true)
  add_run_spending(h, more_t, more_u)
  return charge(tid, envelope(tid), h.run, 0, 0, more_t, more_u, 'kind', 'correction', 'call', cid, 'tool', h.tool,
    'model', h.model or '', 'outcome', outcome, 'held_t', '0', 'held_u', '0', 'version', h.version,
    'detail', detail)
end
