-- needs: findings
local SESSION = { 'agent', 'owner', 'name', 'number' }

-- check_prompts checks the prompts of a session that have not ended. The adapter gets the first one, until it has
-- accepted it. During a turn of the session it gets none.
local function check_prompts(sid, agent)
  local first, open = (call('HGET', K('asession:', sid), 'turn') or '') == '', K('open-prompts:', sid)
  for _, pid in ipairs(call('ZRANGE', open, 0, -1)) do
    local p = call('HMGET', K('prompt:', pid), 'session', 'state', 'number')
    local lives = p[1] == sid and (p[2] == 'queued' or p[2] == 'accepted')
    if not lives then check_member('prompt', open, pid, false) end
    check_member('prompt', K('ready-prompts:', agent), pid, lives and first and p[2] == 'queued' and p[3])
    first = first and not lives
  end
end

-- check_wake checks that a wake which is under way can still be accepted or refused.
local function check_wake(sid)
  local pid = call('HGET', K('session-wake:', sid), 'under_way')
  if not pid or pid == '' then return end
  local p = call('HMGET', K('prompt:', pid), 'session', 'state', 'wake')
  if p[1] == sid and p[2] == 'queued' and p[3] then return end
  report_violation('wake_open', sid, 'its wake ' .. pid .. ' is ' .. (p[2] or 'gone') .. ', and counts as under way',
    function() call('HSET', K('session-wake:', sid), 'under_way', '') end)
end

-- check_session checks a session that has not ended, and the lists that it is in.
local function check_session(sid, s)
  for _, field in ipairs(SESSION) do
    if not s[field] then return report_violation('session_damaged', sid, 'it has no ' .. field) end
  end
  local place = not s.ended and s.number
  check_member('session', K('asessions'), sid, place)
  check_member('session', K('asessions:', s.agent), sid, place)
  check_member('session', K('stopping:', s.agent), sid, s.stop and place)
  if s.name ~= '' then
    check_member('session', K('named-sessions:', s.name), sid, place)
    check_member('session', K('wake-due'), sid, place and true, NOW)
  end
  check_prompts(sid, s.agent)
  check_wake(sid)
end
