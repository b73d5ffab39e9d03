-- flags: allow-oom
-- needs: agent drain
-- urgent
-- heartbeat records a heartbeat of an agent and returns the commands that wait for it.
-- ARGV: agent, actor, operator 0|1, incarnation or 0, status it reports, load
--   or '', its own time ms, number of commands handled, command..., task in progress...
-- Reply: raw (ms), status, drift ('', drifts or began_to_drift), stop (tasks), pending (command ids and JSON)
-- Errors: not_found, forbidden, agent_gone, judge_due
local id, by = ARGV[1], ARGV[2]
local a = read_agent(id, 'drifting', 'commands', 'drain_command')
local no = check_allowed(a, by, ARGV[3]) or check_gone(a, ARGV[4]) -- @not-gone
if no then return no end -- @heartbeat-refused
-- A heartbeat is the agent's own, whatever its key may do.
local actor = actor_name(id, a, by, '0') -- @heartbeat-actor

put(a, 'beat', RAW, 'beat_at', NOW) -- @stores-heartbeat
if ARGV[6] ~= '' then put(a, 'load', ARGV[6]) end
if a.status == 'unhealthy' then set_agent_status(id, a, 'active', 'heartbeat_resumed', actor) end -- @resumes-active
if a.status == 'draining' and call('ZCARD', leases_key(id, a)) == 0 then -- @drained-at-heartbeat
  set_agent_status(id, a, 'deregistered', 'drain_completed', 'server')
elseif a.status == 'active' and ARGV[5] == 'draining' then
  begin_drain(id, a, '', actor)
end
if not GONE[a.status] then schedule_judgement(id, a) end

-- The agent's own time decides nothing. A wrong clock is only reported, at most ten
-- times an hour, so that an agent cannot fill the log by setting its clock.
local HOUR = 3600000
local function may_tell()
  for i = 1, 10 do
    if call('SET', K('told:', 'agent.drift:' .. id .. ':' .. i), '1', 'NX', 'PX', F(HOUR)) then return true end
  end
end
local off = num(ARGV[7]) - raw
local drift = math.abs(off) > 2000 * num(a.interval) and 'drifts' or ''
if drift ~= '' and a.drifting ~= '1' and may_tell() then
  drift = 'began_to_drift'
  emit('agent.drift', { agent = id, actor = 'server' }, '{"offsetMs":' .. F(off) ..
    ',"intervalSeconds":' .. a.interval .. '}')
end
if (drift ~= '') ~= (a.drifting == '1') then put(a, 'drifting', drift ~= '' and '1' or '0') end

local first = 9 + num(ARGV[8])
local pending = {}
if num(a.commands) > 0 then
  -- A drain command is acknowledged by draining, not by handled_commands.
  for i = 9, first - 1 do
    if ARGV[i] ~= a.drain_command then handle_command(id, a, ARGV[i], actor) end
  end
  pending = call('HGETALL', K('commands:', id))
end

local function holds(task)
  if call('ZSCORE', leases_key(id, a), task) then return true end
  local t = call('HMGET', K('task:', task), 'state', 'run')
  return t[1] == 'leased' and call('HGET', K('run:', t[2]), 'agent') == id
end
local stop, seen = {}, {}
for i = first, #ARGV do
  if not seen[ARGV[i]] and not holds(ARGV[i]) then stop[#stop + 1] = ARGV[i] end -- @stops-strange-work
  seen[ARGV[i]] = true
end
return named{ raw = RAW, status = a.status, drift = drift, stop = stop, pending = pending }
