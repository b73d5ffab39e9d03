-- needs: agent drain
-- essential
-- command gives an agent a command. The agent gets it with the answers of its heartbeats until it
-- acknowledges it. There is one order to drain at a time: the next takes its place and its id.
-- ARGV: agent, actor, operator 0|1, request key, body hash, command id,
--   command, request JSON, reason, most that may be pending
-- Reply: command id
-- Errors: not_found, forbidden, judge_due, agent_gone, state_conflict (it drains
--   already), rate_limited (too many pending), idempotency_conflict
local id, by, cid = ARGV[1], ARGV[2], ARGV[6]
local was, err = find_request(ARGV[4], ARGV[5])
if err then return err end
if was then return was end
local a = read_agent(id, 'commands', 'drain_command')
err = check_allowed(a, by, ARGV[3])
if err then return err end
if GONE[a.status] then return refuse('agent_gone', 'status', a.status, 'reason', a.reason, 'kind', 'command') end
local drains = ARGV[7] == 'drain'
if drains and a.status == 'draining' then
  return refuse('state_conflict.agent_status', 'status', 'draining', 'asked', 'draining')
end
local again = drains and a.drain_command ~= ''
if again then
  cid = a.drain_command
elseif num(a.commands) >= num(ARGV[10]) then
  return refuse('rate_limited', 'pending', a.commands)
else
  put(a, 'commands', F(num(a.commands) + 1))
end
if drains then put(a, 'drain_command', cid) end
local before = call('HGET', K('commands:', id), cid) or 'null'
call('HSET', K('commands:', id), cid, ARGV[8])
emit_command(id, cid, 'requested', ARGV[8], actor_name(id, a, by, ARGV[3]), ARGV[9], before, ARGV[8])
remember(ARGV[4], ARGV[5], cid, DAY)
return cid
