-- needs: charge facts fence money nudge quota settle
-- reads: task 1, run 2, deadlines 1
-- reserve admits a call that costs money: it takes the bound of its price out of
-- what is available, in the step that finds the lease to hold. A call made
-- before answers what it answered then.
-- ARGV: task, run, secret, presented token, call id, nonce, tool, hash of the arguments, tokens, nano-dollars,
--   version of the prices, external 0|1, timeout ms, keyed 0|1, probe 0|1: less is asked for when it is refused,
--   most calls, kept answers and bytes of these of a tree in a day, most calls of a task at once, model or ''
-- Reply: token, available (tokens and nano-dollars), ttl (ms of the lease), nudge (JSON or ''), and result, cost
--   (tokens and nano-dollars) when the call was made before
-- Errors: those of fenced; paused, lease_ending, call_repeated, budget_exceeded, call_in_progress,
--   idempotency_conflict, state_conflict,
--   quota_exceeded
local tid, rid, cid, nonce, tool, hash = ARGV[1], ARGV[2], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local need_t, need_u, external, timeout = num(ARGV[9]), num(ARGV[10]), ARGV[12] == '1', num(ARGV[13])
local t, r, deadline, err = fenced(tid, rid, ARGV[3], ARGV[4])
if err then return err end
deadline = confirmed_deadline(r, deadline)
local e, h = envelope(tid), load_call(tid, cid)

local TOLD = 5 -- of the same call in a row: then the agent is told, with this call and each that follows
local MOST = 10 -- more than these are refused until the agent has called something else

-- What an LLM answers cannot carry a nudge, so the next other call does.
local function answer(result, cost)
  local nudge = string.sub(tool, 1, 4) == 'llm_' and '' or nudge_for_call(r, cid)
  if h.told == '1' then nudge = r.nudge or '' end -- @tells-repeats
  return named{ token = num(r.token), available = { free_amount(e) }, ttl = deadline - now, nudge = nudge,
    result = result, cost = cost }
end

-- exceeded writes an event about a refusal, for the first 20 of a run in a minute. It also stores
-- how many top-ups there have been, so that a caller can wait for the next one, and what was asked
-- for, so that a top-up knows whether it is enough.
local function exceeded()
  local tops = e.tops or '0'
  local by, at = string.match(e.refused or '', '^(%S+) (%d+) ')
  local first = by ~= rid or at ~= tops -- @first-since-top-up
  put(r, 'tops_seen', tops)
  put(e, 'refused', rid .. ' ' .. tops .. ' ' .. F(need_t) .. ' ' .. F(need_u))
  local told = call('HINCRBY', K('short:', rid), 'n', 1)
  if told == 1 then call('PEXPIRE', K('short:', rid), 60000) end
  if told <= 20 then
    emit('budget.exceeded', { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid },
      '{"tool":' .. quote(tool) .. ',"need":' .. amount_json(need_t, need_u) ..
      ',"available":' .. amount_json(free_amount(e)) .. ',"first":' .. tostring(first) .. spending_facts(e) ..
      task_facts(tid) .. '}')
  end
  save()
end

if h.state and h.hash ~= hash then return refuse('idempotency_conflict') end -- @same-arguments
if h.state == 'open' then
  if h.nonce ~= nonce then return refuse('call_in_progress') end -- @call-in-progress
  return answer()
elseif h.state and h.outcome == 'uncertain' then -- @repeats-uncertain
  return refuse('state_conflict.call_uncertain', 'call', cid, 'outcome', 'uncertain')
elseif h.state and h.outcome ~= 'undispatched' then -- @repeats-settled
  local result = call('GET', K('result:', tid .. ':' .. cid))
  if not result then return refuse('state_conflict.result_not_kept', 'call', cid, 'outcome', h.outcome) end
  return answer(result, { num(h.cost_t), num(h.cost_u) })
end

if paused ~= '' then return refuse('paused') end -- @reserves-none-paused
local window = num(r.window)
local margin = window < 10000 and 500 or math.max(window / 10, 2000)
if external and now >= deadline - margin then return refuse('lease_ending', 'ttl', F(deadline - now)) end

-- Calls that are the same have the same hash. A call without one is not that of a tool.
local this, same = hash ~= '' and 'paid ' .. hash or '', 0
if this ~= '' then
  pick(r[1], 'call', 'same', 'row', 'row_told', 'nudges', 'nudge', 'nudge_for')
  if r.call == this then same = num(r.same) end -- @same-paid-call
  if same >= MOST then return refuse('call_repeated', 'limit', MOST) end -- @bounds-repeats
end
local root = root_of(tid, t)
local calls, answers, bytes, slots = count_kept_calls(root)
local no = check_quota('open_calls', num(ARGV[19]), call('ZCARD', K('calls:', tid)), 1) -- @bounds-open-calls
  or check_quota('calls', num(ARGV[16]), calls, 1)
if not no and ARGV[14] == '1' then -- @bounds-answers
  no = check_quota('kept_answers', num(ARGV[17]), answers, 1)
    or check_quota('kept_answer_bytes', num(ARGV[18]), bytes, 1)
end
if no then return no end
no = check_funds(tid, need_t, need_u) -- @call-is-covered
if no then
  if ARGV[15] ~= '1' then exceeded() end
  return no
end

deadline = confirm_lease(tid, r, deadline)
put(r, 'active', NOW)
local row, told
if this ~= '' then
  row = same > 0 and r.row or cid
  same = same + 1
  put(r, 'call', this, 'call_by', cid, 'same', F(same), 'row', row) -- @counts-repeats
  if same >= TOLD then told = '1' end
  if told and r.row_told ~= row then -- @tells-row-once
    put(r, 'row_told', row)
    nudge_run(tid, rid, r, 'loop', 'the same call of ' .. tool .. ' came ' .. F(same) .. ' times in a row')
  end
end
do
  local short_t, short_u = refused_need(e, rid)
  if short_t + short_u > 0 and need_t >= short_t and need_u >= short_u then -- @covers-refused
    put(e, 'refused', string.match(e.refused, '^%S+ %d+ ') .. '0 0')
  end
end
add_amount(e, 'available', -need_t, -need_u) -- @takes-reserved
add_amount(e, 'held', need_t, need_u)
add_total('held_t', need_t)
add_total('held_u', need_u)
record_kept_call(root, slots, 1, 0, 0) -- @counts-calls
local ends = now + timeout + LINGER
if h.state then call('DEL', h[1]) end -- it never left: this is another one
local made = new_record(h[1], {})
put(made, 'task', tid, 'run', rid, 'tool', tool, 'nonce', nonce, 'hash', hash, 'need_t', ARGV[9],
  'need_u', ARGV[10], 'version', ARGV[11], 'ext', ARGV[12], 'keyed', ARGV[14], 'deadline', F(ends), 'state', 'open',
  'token', r.token, 'at', RAW, 'model', ARGV[20])
if row then put(made, 'row', row) end
if told then put(made, 'told', told) end
h.told = told
call('ZADD', K('holds'), F(ends), tid .. ':' .. cid)
call('ZADD', K('calls:', tid), F(ends), cid)
if external then call('ZADD', K('inflight:', tid), F(now + timeout + LAG), cid) end -- @external-until
return answer()
