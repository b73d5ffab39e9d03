-- flags: allow-oom
-- needs: charge evidence money
-- usage books what an agent's own output says it has used, a running total of
-- one session: what is more than at the last report, and than the LLM proxy has
-- charged to the same run. Nobody has measured it. So the holder, or the last
-- run of the task, is charged up to what the task was granted. The rest, and all
-- that any other run or one of a revoked key reports, is unverified: a row of
-- the ledger and an event. What was unverified because calls held the money, or
-- before a top-up, is charged by the next report, or by the end of the task.
-- ARGV: task, run, secret, presented token, source, session, scope (run|session), tokens, nano-dollars
-- Reply: charged (now), available, unverified (tokens and nano-dollars each), overrun (1 when that envelope is locked)
-- Errors: lease_expired, task_mismatch, stale_fence, unknown_fence, rate_limited, validation_failed (too many
--   sessions, or more than is counted)
local SESSIONS = 1000
local MOST_T, MOST_U = 2147483647000, 4000000000000000
local BURST, EVERY = 240, 5000 -- reports that book something: so many at once, then one in so many ms
local tid, rid, source = ARGV[1], ARGV[2], ARGV[5]
local r, err = authenticate_run(tid, rid, ARGV[3], ARGV[4])
if err then return err end
local t, e = pick(K('task:', tid), 'state', 'run', 'root'), envelope(tid)
local unverified = (t.state == 'cancelled' or cancelled_ancestor(t)) and 'task_cancelled' -- @charges-no-cancelled
  or t.run ~= rid and 'superseded' or key_ended_leases(r.key) and 'key_revoked' -- @charges-no-superseded

local totals = K('usage:', ARGV[7] == 'session' and tid .. ':session' or rid)
local session = source .. ' ' .. ARGV[6]
local was = call('HGET', totals, session)
if unverified then
  -- The total of a session is the holder's, so it is looked at and left alone.
  local shared = was
  totals, session = K('usage:', rid), 'unverified ' .. session -- @total-of-run
  was = call('HGET', totals, session) or shared
end
if not was and call('HLEN', totals) >= SESSIONS then
  return refuse('validation_failed', 'field', '/session', 'limit', SESSIONS)
end
local was_t, was_u = string.match(was or '0 0', '^(%d+) (%d+)$')
was_t, was_u = num(was_t), num(was_u)
local total_t, total_u = math.max(was_t, num(ARGV[8])), math.max(was_u, num(ARGV[9]))

-- bounded is how much of a report counts: ten times what the task was granted
-- or, where that is nothing, ten times the default envelope.
local function bounded(more, granted, default)
  return math.min(more, 10 * (granted > 0 and granted or default)) -- @bounds-report
end
local more_t = bounded(total_t - was_t, num(e.envelope_t), 1000000)
local more_u = bounded(total_u - was_u, num(e.envelope_u), 1000000000)

-- A session may have begun in an earlier run, and so may what it is charged for.
local of = ARGV[7] == 'session' and not unverified and e or r
local owed_t = math.max(0, num(of.reported_t) + more_t - num(of.llm_t) - num(of.charged_t))
local owed_u = math.max(0, num(of.reported_u) + more_u - num(of.llm_u) - num(of.charged_u)) -- @owes-difference

-- room is what can still be charged, in one dimension. An open envelope pays
-- with what is available. A closed one has given the rest back; it is charged
-- up to what it and each closed one above it were granted, and a task that is
-- still open above them pays with no more than it has available.
local function room(dim)
  local id, p = tid, e
  local left = e.closed == '1' and math.huge or num(e['available_' .. dim]) -- @pays-late
  while p and p.closed == '1' do
    left = math.min(left, math.max(0, num(p['available_' .. dim])) + -- @pays-from-above
      math.max(0, num(p['envelope_' .. dim]) - num(p['granted_' .. dim])))
    id = p.parent
    p = id ~= '' and envelope(id)
  end
  local task = p and p.parent and envelope_task(id) ~= ''
  return unverified and 0 or math.max(0, task and math.min(left, num(p['available_' .. dim])) or left)
end
-- A run that has given its task back does not lock the envelope of the next holder.
local waits = t.state == 'queued' or t.state == 'handoff'
local into = (unverified or waits) and r or e -- @locks-own-run
local was_rest_t = into == e and num(e.unverified_t) or 0
local was_rest_u = into == e and num(e.unverified_u) or 0 -- @owes-unverified
local cost_t = math.min(owed_t + was_rest_t, room('t'))
local cost_u = math.min(owed_u + was_rest_u, room('u')) -- @charges-up-to-grant
local rest_t, rest_u = owed_t - cost_t, owed_u - cost_u -- negative if more is charged than was owed
if num(into.unverified_t) + rest_t > MOST_T then
  return refuse('validation_failed', 'field', '/tokens', 'limit', F(MOST_T))
end
if num(into.unverified_u) + rest_u > MOST_U then
  return refuse('validation_failed', 'field', '/usd', 'limit', F(MOST_U))
end
if owed_t > 0 or owed_u > 0 or cost_t > 0 or cost_u > 0 then
  local full = math.max(num(r.usage_full), now) + EVERY
  if full > now + BURST * EVERY then return refuse('rate_limited', 'kind', 'usage') end
  put(r, 'usage_full', F(full))
end

call('HSET', totals, session, F(total_t) .. ' ' .. F(total_u))
add_amount(of, 'reported', more_t, more_u)
add_amount(of, 'charged', owed_t, owed_u)
-- it is reported by now, whichever run asks next
if of == r and not unverified then add_amount(e, 'llm', owed_t - more_t, owed_u - more_u) end
local p = e
if cost_t > 0 or cost_u > 0 then
  add_amount(r, 'spent', cost_t, cost_u)
  emit('tool.called', { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid },
    '{"tool":' .. quote(source) .. ',"outcome":"done","cost":' .. amount_json(cost_t, cost_u) ..
    ',"reserved":' .. amount_json(0, 0) .. ',"usage":true}')
  p = charge(tid, e, rid, 0, 0, cost_t, cost_u, 'kind', 'usage', 'tool', source, 'outcome', 'done', 'held_t', '0',
    'held_u', '0', 'detail', ARGV[6])
elseif not unverified then
  p = payer_of(tid, e)
end
local more_rest_t, more_rest_u = math.max(0, rest_t), math.max(0, rest_u)
local more_rest = more_rest_t > 0 or more_rest_u > 0
if rest_t ~= 0 or rest_u ~= 0 then
  local reason = more_rest and (unverified or 'over_envelope') or 'charged_since'
  local first = more_rest and num(into.unverified_t) == 0 and num(into.unverified_u) == 0
  add_amount(into, 'unverified', rest_t, rest_u) -- @adds-unverified
  if more_rest then
    add_total('unverified_t', more_rest_t)
    add_total('unverified_u', more_rest_u)
  end
  -- Each row of the ledger has an event of its own, whose number is its id.
  emit('budget.unverified', { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid, reason = reason },
    '{"envelope":' .. quote(tid) .. ',"tool":' .. quote(source) .. ',"usage":' .. amount_json(rest_t, rest_u) ..
    ',"reason":' .. quote(reason) .. ',"first":' .. (first and 'true' or 'false') .. '}')
  add_ledger_row(tid, 'run', rid, 'cost_t', '0', 'cost_u', '0', 'kind', 'unverified', 'tool', source, 'unverified_t',
    F(rest_t), 'unverified_u', F(rest_u), 'held_t', '0', 'held_u', '0', 'detail', reason)
end
-- Another run must not learn the balance of the current holder.
local reply = { charged = { cost_t, cost_u }, unverified = { more_rest_t, more_rest_u } }
if t.run ~= rid then return named(reply) end
local free_t, free_u = free_amount(p)
if into == e and e.closed ~= '1' and more_rest then
  emit('budget.overrun', { task = tid, run = rid, actor = 'server' }, '{"envelope":' .. quote(tid) ..
    ',"cost":' .. amount_json(more_rest_t, more_rest_u) .. ',"reserved":' .. amount_json(0, 0) ..
    ',"available":' .. amount_json(free_t, free_u) .. '}')
end
reply.available, reply.overrun = { free_t, free_u }, is_locked(p) and 1 or 0
return named(reply)
