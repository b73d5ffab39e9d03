-- covers reports whether an agent of a role takes tasks of a lane. caps are its capabilities, as ,a,b, and the
-- role '!' takes only what is kept for the agent.
local function covers(lane, agent, role, caps)
  local pinned = string.match(lane, '^agent:(.*)$')
  if pinned then return pinned == agent end
  -- for:<agent>|<lane> is that agent's, and that of anyone who covers the lane.
  local home, open = string.match(lane, '^for:([^|]*)|(.*)$')
  if home and home == agent then return true end
  lane = open or lane
  if role == '!' then return false end
  local of, needs = string.match(lane, '^([^|]*)|(.*)$')
  if of ~= '' and of ~= role then return false end -- @same-role
  for need in string.gmatch(needs, '[^,]+') do
    if not string.find(caps, ',' .. need .. ',', 1, true) then return false end -- @every-capability
  end
  return true
end
