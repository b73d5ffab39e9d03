-- needs: covers
-- claimable says how much work waits that an agent would take, which read_agent has read with its caps: rows of a
-- lane and its tasks, the lane of the next task first, and 1 if there may be more lanes, else 0.
local LOOKS, LANES = 200, 50
local function claimable(id, a)
  local rows = {}
  local takes = a.status == 'active' or a.status == 'unhealthy'
  local role = a.role == 'attached' and '!' or a.role
  for i, lane in ipairs(takes and call('ZRANGE', K('lanes'), 0, LOOKS) or {}) do
    local mine = covers(lane, id, role, ',' .. (a.caps or '') .. ',') -- @context-of-covered-lanes
    if i > LOOKS or mine and #rows == LANES then return rows, 1 end -- @bounds-context-lanes
    if mine then rows[#rows + 1] = named{ lane = lane, tasks = call('ZCARD', K('lane:', lane)) } end
  end
  return rows, 0
end
