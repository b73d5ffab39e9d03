-- flags: allow-oom
-- needs: money books evidence
-- usage charges what an agent's own output says it has used, a running total of
-- one session: what is more than at the last report, and than the LLM proxy has
-- charged to the same run.
-- ARGV: task, run, secret, presented token, source, session, scope (run|session), tokens, nano-dollars
-- Reply: {tokens, nano-dollars charged now, available tokens, available nano-dollars, 1 when that envelope is locked}
-- Errors: lease_expired, task_mismatch, stale_fence, unknown_fence, validation_failed (too many sessions,
--   or more than is counted)
local SESSIONS = 1000
local MOST_T, MOST_U = 2147483647000, 4000000000000000
local tid, rid, source = ARGV[1], ARGV[2], ARGV[5]
local r, err = witness(tid, rid, ARGV[3], ARGV[4])
if err then return err end
local totals = K('usage:', ARGV[7] == 'session' and tid .. ':session' or rid)
local session = source .. ' ' .. ARGV[6]
local was = call('HGET', totals, session)
if not was and call('HLEN', totals) >= SESSIONS then return refuse('validation_failed', 'field', '/session', 'limit', SESSIONS) end
local was_t, was_u = string.match(was or '0 0', '^(%d+) (%d+)$')
was_t, was_u = num(was_t), num(was_u)
local total_t, total_u = math.max(was_t, num(ARGV[8])), math.max(was_u, num(ARGV[9]))
local more_t, more_u = total_t - was_t, total_u - was_u
local e = envelope(tid)
-- A session may have begun in an earlier run, and so may what it is charged for.
local of = ARGV[7] == 'session' and e or r
local owed_t = math.max(0, num(of.reported_t) + more_t - num(of.llm_t) - num(of.charged_t))
local owed_u = math.max(0, num(of.reported_u) + more_u - num(of.llm_u) - num(of.charged_u))
if num(e.spent_t) + owed_t > MOST_T then return refuse('validation_failed', 'field', '/tokens', 'limit', F(MOST_T)) end
if num(e.spent_u) + owed_u > MOST_U then return refuse('validation_failed', 'field', '/usd', 'limit', F(MOST_U)) end
call('HSET', totals, session, F(total_t) .. ' ' .. F(total_u))
shift(of, 'reported', more_t, more_u)
if of == r then shift(e, 'llm', owed_t - more_t, owed_u - more_u) end -- reported by now, whoever asks next
local p
if owed_t > 0 or owed_u > 0 then
  shift(of, 'charged', owed_t, owed_u)
  shift(r, 'spent', owed_t, owed_u)
  emit('tool.called', { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid }, '{"tool":' .. quote(source) ..
    ',"outcome":"done","cost":' .. both(owed_t, owed_u) .. ',"reserved":' .. both(0, 0) .. ',"usage":true}')
  p = charge(tid, e, rid, 0, 0, owed_t, owed_u, 'kind', 'usage', 'tool', source, 'outcome', 'done', 'held_t', '0', 'held_u', '0', 'detail', ARGV[6])
else
  p = payer_of(tid, e)
end
return { owed_t, owed_u, num(p.available_t), num(p.available_u), locked(p) and 1 or 0 }
