-- needs: agent session_row
-- Events about the health of sessions. Readers and decisions about wakes do not use them: they judge health when they
-- need it. The end of a session has an event of its own.

-- judged_health judges the facts of a session as package heartbeat does: state, health and detail code or ''. A report
-- older than stale ms is stale. A session that works on a prompt is as healthy as one that is idle.
local function judged_health(f, stale)
  local works = f.state == 'prompting' or (f.prompt or '') ~= ''
  if num(f.reported_at) < num(reports_count_from()) then return 'detached', 'unknown', 'health_unknown' end
  local old = f.unhealthy == 1 or now - num(f.reported_at) > stale
  if old then return f.state, 'stale', 'health_stale' end
  if works and f.silent == 1 then return 'prompting', 'degraded', 'health_hung' end
  if works then return 'prompting', 'healthy', '' end
  local away = f.draining == 1 or (f.because or '') ~= '' or f.state == 'detached'
  return away and 'detached' or 'idle', away and 'degraded' or 'healthy', ''
end

-- tell_health writes the event of a session of which the health has changed since its last such event, if that was at
-- least every ms ago. It plans when the session is looked at next: no later than it can become stale.
local function tell_health(sid, stale, every)
  local f = session_facts(sid)
  if not f or f.dead == 1 then
    call('ZREM', K('health-due'), sid) -- @looks-at-what-lives
    return
  end
  local state, health, detail = judged_health(f, stale)
  local s = pick(K('asession:', sid), 'health', 'health_at')
  local was, is = s.health or 'healthy', health .. ' ' .. detail
  if detail == '' then is = health end
  local next = health == 'healthy' and math.min(num(f.reported_at) + stale + 1, judge_at(read_agent(f.agent)))
    or now + 60000
  local allowed = num(s.health_at) + every
  if is ~= was and s.health_at and now < allowed then -- @bounds-health-events
    next = allowed
  elseif is ~= was then
    emit('agent_session.health', { agent = f.agent, actor = 'server' }, '{"sessionId":' .. quote(sid) .. ',"state":' ..
      quote(state) .. ',"detailCode":' .. (detail == '' and 'null' or quote(detail)) ..
      before_after('health', string.match(was, '^%a+'), health) .. '}')
    put(s, 'health', is, 'health_at', NOW)
  end
  call('ZADD', K('health-due'), F(next), sid) -- @plans-health
end
