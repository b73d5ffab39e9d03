-- flags: allow-oom
-- needs: registration
-- agent shows an agent's record.
-- ARGV: agent
-- Reply: agent_view
-- Errors: not_found
return agent_view(ARGV[1])
