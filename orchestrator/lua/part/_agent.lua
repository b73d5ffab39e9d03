-- needs: facts lane
-- Agents: what every script shares that looks at one. Its record alone says
-- when time changes its status next; silence is the index of these instants.
local GONE = { dead = true, deregistered = true }

local function read_agent(id, ...)
  return pick(K('agent:', id), 'status', 'reason', 'role', 'version', 'incarnation', 'owner', 'beat_at', 'interval',
    'unhealthy', 'dead', 'drain_due', ...)
end

-- void_reason returns why a lease does not hold any more although its end was not written yet: the
-- key that acquired it was revoked with its leases, or the registration to which it was granted is
-- over.
local function void_reason(r)
  if key_ended_leases(r.key) then return 'key_revoked' end
  if num(r.incarnation) == 0 then return nil end
  local a = pick(K('agent:', r.agent), 'status', 'incarnation')
  if a.incarnation == r.incarnation and not GONE[a.status] then return nil end -- @same-registration
  return a.status == 'deregistered' and 'agent_deregistered' or 'agent_dead'
end

-- takes_tasks reports whether a registered agent may be given one.
local function takes_tasks(id)
  local status = pick(K('agent:', id), 'status').status
  return status == 'active' or status == 'unhealthy'
end

-- judge_at is that instant, in store time. Silence as long as a threshold is
-- still fine, one millisecond more is not.
local function judge_at(a)
  if a.status == 'active' then return num(a.beat_at) + num(a.unhealthy) * 1000 + 1 end -- @unhealthy-at
  local silent = num(a.beat_at) + num(a.dead) * 1000 + 1 -- @dead-at
  return a.status == 'draining' and math.min(silent, num(a.drain_due)) or silent
end

-- lives reports whether an agent participates, also if nobody has written down that it is dead.
local function lives(a)
  local ends = a.status == 'active' and num(a.beat_at) + num(a.dead) * 1000 + 1 or judge_at(a)
  return a.status and not GONE[a.status] and now < ends -- @lives-until
end

-- agent_name is the key of agents: in picket.yaml in the metadata of an agent, or ''. It is also '' if the
-- store cannot read the metadata, such as a number beyond all bounds.
local function agent_name(id)
  local read, about = pcall(cjson.decode, call('GET', K('metadata:', id)) or '{}')
  local name = read and type(about) == 'table' and about.agent_name -- @reads-any-metadata
  if type(name) ~= 'string' or #name > 128 or not string.find(name, '^%w[%w_.-]*$') then name = '' end -- @checks-name
  return name
end

-- named_agents lists the agents of an agent name that one key has registered and that are not gone.
local function named_agents(name, owner) return K('named-agents:', name .. ':' .. owner) end

local function schedule_judgement(id, a) call('ZADD', K('silence'), F(judge_at(a)), id) end

-- check_allowed returns the refusal of a caller that may not act for an agent. While the written
-- status of the agent is out of date, it refuses everybody, and its second result is true.
local function check_allowed(a, by, operator)
  if not a.status then return refuse('not_found', 'kind', 'agent') end
  if a.owner ~= by and operator ~= '1' then return refuse('forbidden', 'kind', 'agent') end -- @own-agent
  if not GONE[a.status] and now >= judge_at(a) then return refuse('judge_due'), true end -- @judged-first
end

-- check_superseded is the refusal of a process whose registration was followed by
-- another one, check_gone that of an agent that no longer participates as well.
local function check_superseded(a, incarnation)
  if num(incarnation) > 0 and num(incarnation) < num(a.incarnation) then -- @newest-process
    return refuse('agent_gone', 'status', a.status, 'reason', a.reason, 'incarnation', a.incarnation)
  end
end

local function check_gone(a, incarnation)
  if GONE[a.status] then return refuse('agent_gone', 'status', a.status, 'reason', a.reason) end
  return check_superseded(a, incarnation)
end

-- actor_name is how the log names who acts for an agent: an operator by the key, also
-- by the one that registered the agent, and the agent itself by its own id.
local function actor_name(id, a, by, operator)
  local itself = a.owner == by and operator ~= '1' -- @acts-itself
  set_actor_is_agent(itself)
  return itself and id or by
end

local function move_roster(id, role, from, to)
  call('ZREM', K('roster:', from), id) -- @leaves-roster
  call('ZREM', K('roster:', from .. '|' .. role), id)
  if to then
    call('ZADD', K('roster:', to), '0', id)
    call('ZADD', K('roster:', to .. '|' .. role), '0', id)
  end
end

local function leases_key(id, a) return K('holder:', id .. ':' .. a.incarnation) end

-- agent_facts is what an event says about an agent that is silent or dead: its role, its name and how
-- many leases it has, after a comma.
local function agent_facts(id, a, status)
  if status ~= 'unhealthy' and status ~= 'dead' then return '' end
  return ',"role":' .. quote(a.role) .. ',"leases":' .. F(call('ZCARD', leases_key(id, a))) .. name_fact(id)
end

-- set_agent_status moves an agent from one status to another, with its event.
local function set_agent_status(id, a, to, reason, actor)
  local from = a.status
  put(a, 'status', to, 'reason', reason, 'version', F(num(a.version) + 1))
  move_roster(id, a.role, from, to)
  if GONE[to] then
    call('ZREM', K('silence'), id) -- @leaves-silence
    call('ZADD', K('gone'), NOW, id)
    local name = agent_name(id)
    if name ~= '' then call('ZREM', named_agents(name, a.owner), id) end -- @leaves-names
    if call('EXISTS', K('asessions:', id)) == 1 then -- @loses-sessions
      call('ZADD', K('chores'), '0', 'sessions:' .. id .. ':' .. reason)
    end
  end
  emit('agent.lifecycle', { agent = id, actor = actor, reason = reason },
    '{"status":' .. quote(to) .. ',"reason":' .. quote(reason) .. ',"version":' .. a.version ..
    ',"incarnation":' .. a.incarnation .. before_after('status', from, to) .. agent_facts(id, a, to) .. '}',
    '{"agent_id":' .. quote(id) ..
    ',"previous_status":' .. quote(from) .. ',"new_status":' .. quote(to) .. '}')
  if to ~= 'active' and to ~= 'unhealthy' then
    wake('agent ' .. id)
    unpin_tasks_of(id)
  end
end
