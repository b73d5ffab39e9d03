-- flags: allow-oom
-- needs: capability money
-- session_capability says whose a session capability is.
-- ARGV: prompt, hash of the capability
-- Reply: agent, session, prompt, actor (as whom the log names it), left (ms until the deadline),
--   available (nano-dollars)
-- Errors: session_capability_invalid
local p, _, err = capability(ARGV[1], ARGV[2])
if err then return err end
return named{ agent = p.agent, session = p.session, prompt = ARGV[1], actor = p.agent, left = F(num(p.due) - now),
  available = F(num(envelope(ARGV[1]).available_u)) }
