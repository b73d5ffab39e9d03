-- needs: agent quota registration
-- register makes an agent a participant, for the first time or again after it
-- was dead or deregistered.
-- ARGV: agent, actor, request key, body hash, role, name, capabilities
--   (a,b), max concurrent tasks or '', endpoint, interval s, unhealthy after s,
--   dead after s, drain timeout s or '', metadata JSON, most records of a key,
--   most bytes of their metadata
-- Reply: agent_view
-- Errors: idempotency_conflict, not_found (a repeat after its record was
--   deleted), agent_gone (a repeat after the next registration), judge_due, state_conflict (it is
--   live), forbidden (registered by another key),
--   quota_exceeded
local id, by, key, body, role = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local was, err = find_request(key, body)
if err then return err end
if was then
  -- If another process has registered meanwhile, the repeated request is refused: with the
  -- incarnation of that process it could act in its place.
  local made, incarnation = string.match(was, '^(%S+) (%d+)$')
  return check_superseded(read_agent(made), incarnation) or agent_view(made)
end
local a = read_agent(id, 'registered')
local from = a.status
if from and not GONE[from] then -- @live-id
  if now >= judge_at(a) then return refuse('judge_due') end
  return refuse('state_conflict.agent_registered', 'status', from)
end
if from and a.owner ~= by then return refuse('forbidden', 'kind', 'registration') end -- @id-of-key

local more = from and 0 or 1 -- @counts-new-record
local bytes = #ARGV[14] - (from and call('STRLEN', K('metadata:', id)) or 0) -- @counts-new-metadata
local no = check_quota('agents', num(ARGV[15]), num(stored_by_key(by).agents), more)
  or bytes > 0 and check_quota('metadata_bytes', num(ARGV[16]), num(stored_by_key(by).bytes), bytes)
if no then return no end
add_stored(by, more, bytes) -- @counts-records
if from then
  count_role(K('pools'), a.role, -1)
  count_role(K('roles-of:', by), a.role, -1)
  call('ZREM', K('gone'), id)
  call('DEL', K('commands:', id)) -- @drops-commands
end
count_role(K('pools'), role, 1)
count_role(K('roles-of:', by), role, 1)
call('SET', K('metadata:', id), ARGV[14])
local name = agent_name(id)
if name ~= '' then call('ZADD', named_agents(name, by), '0', id) end
-- One counter for all agents: it does not fall when a record is deleted, nor
-- when an older store comes back, for the floor has risen then.
local next_incarnation = F(math.max(num(meta.incarnations), floor) + 1) -- @next-incarnation
call_now('HSET', META, 'incarnations', next_incarnation)
meta.incarnations = next_incarnation
local old_role = a.role
put(a, 'role', role, 'name', ARGV[6], 'caps', ARGV[7], 'max', ARGV[8], 'load', '0', 'endpoint', ARGV[9],
  'interval', ARGV[10], 'unhealthy', ARGV[11], 'dead', ARGV[12], 'drain', ARGV[13], 'registered', a.registered or RAW,
  'beat', RAW, 'beat_at', NOW, 'incarnation', next_incarnation, 'owner', by, 'drain_until', '', 'drain_due', '',
  'drain_command', '', 'drifting', '0', 'commands', '0', 'agent_name', name)
if from then move_roster(id, old_role, from) end
a.status, a.version = from or 'registering', '0'
set_actor_is_agent(true)
set_agent_status(id, a, 'active', from and 're_registered' or 'registered', id)
schedule_judgement(id, a)
remember(key, body, id .. ' ' .. a.incarnation, DAY)
return agent_view(id)
