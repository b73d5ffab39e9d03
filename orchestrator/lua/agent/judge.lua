-- flags: allow-oom
-- needs: agent end_agent facts session session_health stale_entry
-- urgent
-- judge writes down what time has made of agents: what they were before a late
-- look included, in order. Anyone who judges first does it for all. It also writes the events of the health of sessions
-- that are due, and ends their overdue prompts, if it is not about one agent.
-- ARGV: agent, or '' for those of the silence index that are due, limit, ms after which the report of a session is
--   stale, least ms between two events about the health of a session
-- Reply: number of agents or sessions looked at, whichever is larger
local room = BATCH

local function judge(id)
  local a = read_agent(id, 'drain_until')
  if not a.status or GONE[a.status] then
    if call('ZSCORE', K('silence'), id) then remove_stale_entry('silence_extra', K('silence'), id) end
    return
  end
  if a.status == 'active' and now >= judge_at(a) then -- @judges-active
    set_agent_status(id, a, 'unhealthy', 'heartbeat_timeout', 'server')
  end
  if now >= judge_at(a) then
    local silent = num(a.beat_at) + num(a.dead) * 1000 + 1
    if a.status == 'unhealthy' or silent < num(a.drain_due) then -- @judges-unhealthy
      room = room - end_agent(id, a, 'dead', 'heartbeat_timeout', 'agent_dead', 'server', room)
    elseif call('ZCARD', leases_key(id, a)) == 0 then
      set_agent_status(id, a, 'deregistered', 'drain_completed', 'server')
    else
      emit('agent.drain_overdue', { agent = id, actor = 'server', reason = 'drain_timeout' }, -- @tells-overdue-drain
        '{"leases":' .. F(call('ZCARD', leases_key(id, a))) .. ',"reason":"drain_timeout","role":' ..
        quote(a.role) .. name_fact(id) .. '}')
      room = room - end_agent(id, a, 'dead', 'drain_timeout', 'drain_timeout', 'server', room)
    end
  end
  if not GONE[a.status] then schedule_judgement(id, a) end
end

if ARGV[1] ~= '' then
  judge(ARGV[1])
  return 1
end
local ids = call('ZRANGEBYSCORE', K('silence'), '-inf', NOW, 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do judge(id) end
save()
local due = call('ZRANGE', K('health-due'), '-inf', NOW, 'BYSCORE', 'LIMIT', 0, ARGV[2])
for _, sid in ipairs(due) do
  local agent = pick(K('asession:', sid), 'agent').agent
  if agent then sessions.end_overdue(sid, agent) end -- @ends-unreported-overdue
  tell_health(sid, num(ARGV[3]), num(ARGV[4])) -- @tells-due-health
end
return math.max(#ids, #due)
