-- flags: allow-oom
-- needs: agent drain registration
-- drain takes an agent out of service: it finishes what it has and gets nothing
-- new. An agent that has the status asked for is left as it is, its deadline too.
-- ARGV: agent, actor, operator 0|1, request key, body hash, status asked for,
--   drain timeout s or '', incarnation or 0, version it must have...
-- Reply: agent_view
-- Errors: not_found, forbidden, judge_due, agent_gone (another registration), version_conflict, state_conflict
--   (another status than draining is not reached by asking), idempotency_conflict
local id, by = ARGV[1], ARGV[2]
local was, err = find_request(ARGV[4], ARGV[5])
if err then return err end
if was then return agent_view(was) end
local a = read_agent(id)
err = check_allowed(a, by, ARGV[3])
err = err or check_superseded(a, ARGV[8]) or check_version(a, 9)
if err then return err end
if a.status ~= ARGV[6] then
  if ARGV[6] ~= 'draining' or GONE[a.status] then
    return refuse('state_conflict.agent_status', 'status', a.status, 'asked', ARGV[6])
  end
  begin_drain(id, a, ARGV[7], actor_name(id, a, by, ARGV[3]))
  schedule_judgement(id, a)
end
remember(ARGV[4], ARGV[5], id, DAY)
return agent_view(id)
