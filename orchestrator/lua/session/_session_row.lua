-- needs: agent
-- session_row shows a session. It returns nil where there is none.
local function session_row(sid)
  local s = call('HMGET', K('asession:', sid), 'agent', 'name', 'incarnation', 'kind', 'preset', 'state', 'prompt',
    'silent', 'because', 'reported', 'reported_at', 'active', 'started', 'ended', 'number', 'task', 'metered')
  if not s[1] then return nil end
  local a = read_agent(s[1])
  local beat = pick(a[1], 'beat').beat
  local gone = not a.status or GONE[a.status] or a.incarnation ~= s[3]
  return named{ id = sid, agent = s[1], name = s[2], incarnation = s[3], kind = s[4], preset = s[5], state = s[6],
    prompt = s[7], silent = s[8] == '1' and 1 or 0, because = s[9], reported = s[10], reported_at = s[11],
    active = s[12] or nil, started = s[13], number = s[15], task = s[16] or '',
    open = call('ZCARD', K('open-prompts:', sid)),
    heartbeat = beat or nil, metered = s[17] == '1' and 1 or 0,
    dead = (s[14] or gone) and 1 or 0, draining = a.status == 'draining' and 1 or 0,
    unhealthy = (a.status == 'unhealthy' or not gone and now >= judge_at(a)) and 1 or 0 }
end
