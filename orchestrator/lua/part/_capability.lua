-- needs: agent
-- capability is the one definition of "admitted" for session capabilities. It returns the prompt that one was
-- made for and its agent, or as the third value the refusal; the first test that fails answers. A session that
-- ends ends its prompts, so the state of the prompt speaks for it, too.
local function capability(pid, hash)
  local p = pick(K('prompt:', pid), 'session', 'agent', 'state', 'due', 'capability')
  local function invalid(cause) return nil, nil, refuse('session_capability_invalid', 'cause', cause) end
  if p.capability ~= hash then return invalid('unknown') end -- @same-capability
  if p.state ~= 'accepted' then return invalid('prompt_ended') end -- @capability-of-open-prompt
  if now >= num(p.due) then return invalid('time') end -- @capability-deadline
  local a = read_agent(p.agent, 'name', 'caps', 'max')
  if GONE[a.status] then return invalid('agent') end -- @capability-of-living-agent
  if pick(K('asession:', p.session), 'incarnation').incarnation ~= a.incarnation then -- @capability-of-registration
    return invalid('superseded')
  end
  if key_ended_leases(a.owner) then return invalid('key_revoked') end -- @capability-of-key
  return p, a
end
