-- flags: allow-oom
-- needs: capability money
-- session_capability says whose a session capability is.
-- ARGV: prompt, or the session if the capability is that of a process; hash of the capability
-- Reply: agent, session, prompt, actor (as whom the log names it), left (ms until the deadline),
--   available (nano-dollars)
-- Errors: session_capability_invalid
local pid = ARGV[1]
local of_process = string.sub(pid, 1, 9) == 'asession_' -- the prompt that was accepted last is the only open one
if of_process then pid = pick(K('asession:', pid), 'accepted').accepted or '' end -- @capability-of-process
local p, _, err = capability(pid, ARGV[2])
if err then return err end
return named{ agent = p.agent, session = p.session, prompt = pid, actor = p.agent, left = F(num(p.due) - now),
  available = F(num(envelope(pid).available_u)) }
