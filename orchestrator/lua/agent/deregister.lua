-- flags: allow-oom
-- needs: agent end_agent registration
-- deregister removes an agent at once: its leases end, which is not a failure of
-- their tasks. One that was deregistered before is left as it is.
-- ARGV: agent, actor, operator 0|1, request key, body hash, incarnation or 0,
--   version it must have...
-- Reply: agent_view
-- Errors: not_found, forbidden, judge_due, agent_gone (another registration), version_conflict, state_conflict (it
--   is dead), idempotency_conflict
local id, by = ARGV[1], ARGV[2]
local was, err = find_request(ARGV[4], ARGV[5])
if err then return err end
if was then return agent_view(was) end
local a = read_agent(id)
err = check_allowed(a, by, ARGV[3])
err = err or check_superseded(a, ARGV[6]) or check_version(a, 7)
if err then return err end
if a.status == 'dead' then
  return refuse('state_conflict.agent_status', 'status', 'dead', 'asked', 'deregistered')
end
if a.status ~= 'deregistered' then
  end_agent(id, a, 'deregistered', 'deregistered', 'agent_deregistered', actor_name(id, a, by, ARGV[3]), BATCH)
end
remember(ARGV[4], ARGV[5], id, DAY)
return agent_view(id)
