-- flags: allow-oom
-- needs: agent
-- agent shows an agent's record.
-- ARGV: agent
-- Reply: agent_view
-- Errors: not_found
return agent_view(ARGV[1])
