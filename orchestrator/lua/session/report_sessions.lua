-- needs: agent session session_health
-- report_sessions stores the whole list of the sessions that an adapter keeps. A session that is not in it
-- has ended.
-- A session that has ended may go on with another agent that the same key registered, such as the next
-- worker of a machine.
-- ARGV: agent, actor, operator 0|1, incarnation, ms after which a report is stale, least ms between two events about
--   the health of a session, then for each session: id, kind, preset, state,
--   prompt under way or '', silent 0|1, why it is detached or '', ms since the last activity or '', task that it
--   works on or '', metered 0|1
-- Reply: OK
-- Errors: not_found, forbidden (also: a session of another agent), agent_gone, judge_due,
--   rate_limited (too many new sessions)
local id, FIELDS, EVERY, BURST = ARGV[1], 10, 10000, 128
local a = read_agent(id, 'sessions_full')
local no = sessions.check_adapter(a, ARGV[2], ARGV[3], ARGV[4])
if no then return no end
local actor = actor_name(id, a, ARGV[2], ARGV[3])

-- Each new session is an event, so an agent may begin only so many of them.
local reported, fresh = {}, 0
for i = 7, #ARGV, FIELDS do
  local s = pick(K('asession:', ARGV[i]), 'agent', 'owner', 'ended', 'stop', 'stop_by', 'incarnation')
  local foreign = s.agent and s.agent ~= id and not (s.ended and s.owner == a.owner) -- @same-owner
  if foreign then return refuse('forbidden', 'kind', 'agent_session') end -- @own-session
  reported[ARGV[i]] = s
  local known = s.agent and not s.ended and s.incarnation == a.incarnation
  if not known and ARGV[i + 3] ~= 'stopped' then fresh = fresh + 1 end
end
if fresh > 0 then
  local full = math.max(num(a.sessions_full), now) + fresh * EVERY
  if full > now + BURST * EVERY then return refuse('rate_limited', 'kind', 'agent_session') end -- @bounds-sessions
  put(a, 'sessions_full', F(full))
end
sessions.lose(id, 're_registered') -- @loses-earlier

-- begin_session puts a new session on the lists, or one that had ended.
local function begin_session(sid, s, kind, preset)
  local name = agent_name(id)
  emit('agent_session.started', { agent = id, actor = actor }, '{"sessionId":' .. quote(sid) .. ',"kind":' ..
    quote(kind) .. ',"preset":' .. quote(preset) .. ',"agentName":' .. quote(name) .. '}')
  if s.ended then
    save()
    call('DEL', K('asession:', sid)) -- @keeps-what-began-again
  end
  put(s, 'agent', id, 'owner', a.owner, 'name', name, 'started', RAW, 'since', NOW,
    'number', meta.seq)
  call('ZADD', K('asessions'), meta.seq, sid)
  call('ZADD', K('asessions:', id), meta.seq, sid)
  call('ZADD', K('wake-due'), NOW, sid)
end

for i = 7, #ARGV, FIELDS do
  local sid, s = ARGV[i], reported[ARGV[i]]
  if ARGV[i + 3] == 'stopped' then
    local runs = s.agent and not s.ended
    if runs then sessions.end_session(sid, s, 'ended', 'stopped', s.stop_by or actor) end -- @ends-stopped
  else
    if not s.agent or s.ended then begin_session(sid, s, ARGV[i + 1], ARGV[i + 2]) end
    local task = ARGV[i + 8]
    local holds = task ~= '' and call('ZSCORE', leases_key(id, a), task)
    if not holds then task = '' end -- @works-on-own-task
    put(s, 'incarnation', a.incarnation, 'kind', ARGV[i + 1], 'preset', ARGV[i + 2], 'state', ARGV[i + 3],
      'prompt', ARGV[i + 4], 'silent', ARGV[i + 5], 'because', ARGV[i + 6], 'task', task, 'reported', RAW,
      'reported_at', NOW, 'metered', ARGV[i + 9])
    local p = task ~= '' and pick(K('prompt:', ARGV[i + 4]), 'session', 'next', 'task')
    if p and p.session == sid and p.next == '1' and not p.task then put(p, 'task', task) end -- @task-of-turn
    sessions.end_overdue(sid, id) -- @ends-overdue
    local turn = pick(s[1], 'turn').turn or ''
    if turn ~= '' and turn ~= ARGV[i + 4] then -- @turn-is-over
      sessions.set_turn(sid, '')
      sessions.offer_next(sid, id) -- @offers-after-turn
    end
    local name = pick(s[1], 'name').name or ''
    if name ~= '' then call('ZADD', K('named-sessions:', name), num(pick(s[1], 'number').number), sid) end
    if ARGV[i + 7] ~= '' then put(s, 'active', F(math.max(0, raw - num(ARGV[i + 7])))) end
    save()
    tell_health(sid, num(ARGV[5]), num(ARGV[6])) -- @tells-reported-health
  end
end
for _, sid in ipairs(call('ZRANGE', K('asessions:', id), 0, -1)) do
  if not reported[sid] then
    sessions.end_session(sid, pick(K('asession:', sid), 'agent', 'ended'), 'ended', 'left_out', actor) -- @ends-left-out
  end
end
return 'OK'
