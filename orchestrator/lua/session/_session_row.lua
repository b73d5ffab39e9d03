-- needs: agent session
-- accepted_prompt is the prompt that the agent of a session works on, or '' if the store knows of none.
local function accepted_prompt(sid)
  local head = call('ZRANGE', K('open-prompts:', sid), 0, 0)[1]
  local p = head and sessions.read_prompt(head)
  local works = p and p.state == 'accepted' and not sessions.overdue_state(p) -- @health-of-accepted
  return works and head or ''
end

-- reports_count_from is from when on the reports of sessions count, in store time: since the store was adopted, and
-- since the process that has the directory of policies took it. Before a wake, sessions have to be reported again.
local function reports_count_from()
  return F(math.max(num(call('HGET', META, 'adopted')), num(call('HGET', K('policy-lock'), 'since')))) -- @reports-again
end

-- session_facts is what is known about a session, as a table. It returns nil where there is none.
local function session_facts(sid)
  local s = call('HMGET', K('asession:', sid), 'agent', 'name', 'incarnation', 'kind', 'preset', 'state', 'prompt',
    'silent', 'because', 'reported', 'reported_at', 'active', 'started', 'ended', 'number', 'task', 'metered', 'turn')
  if not s[1] then return nil end
  local a = read_agent(s[1])
  local beat = pick(a[1], 'beat').beat
  local works = accepted_prompt(sid)
  local turn = s[18] or ''
  if works == '' then works = turn end -- @shows-turn
  local gone = not a.status or GONE[a.status] or a.incarnation ~= s[3]
  return { id = sid, agent = s[1], name = s[2], incarnation = s[3], kind = s[4], preset = s[5], state = s[6],
    prompt = works ~= '' and works or s[7], silent = s[8] == '1' and 1 or 0,
    because = s[9], reported = s[10], reported_at = s[11],
    active = s[12] or nil, started = s[13], number = s[15], task = s[16] or '',
    open = call('ZCARD', K('open-prompts:', sid)),
    turn = turn ~= '' and 1 or 0, -- @turn-is-work
    heartbeat = beat or nil, metered = s[17] == '1' and 1 or 0,
    dead = (s[14] or gone) and 1 or 0, draining = a.status == 'draining' and 1 or 0,
    unhealthy = (a.status == 'unhealthy' or not gone and now >= judge_at(a)) and 1 or 0 }
end

-- session_row shows a session. It returns nil where there is none.
local function session_row(sid)
  local facts = session_facts(sid)
  return facts and named(facts)
end

-- live_sessions counts the sessions of a list that have not ended and of which the agent participates in the same
-- registration, also if nobody has written down yet that others are over. It returns the first of them as well, or ''.
local function live_sessions(key)
  local n, first = 0, ''
  for _, sid in ipairs(call('ZRANGE', key, 0, -1)) do
    local s = call('HMGET', K('asession:', sid), 'agent', 'incarnation')
    local a = read_agent(s[1] or '')
    if lives(a) and a.incarnation == s[2] then -- @counts-live-sessions
      first = n == 0 and sid or first
      n = n + 1
    end
  end
  return n, first
end
