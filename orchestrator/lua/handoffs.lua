-- needs: view
-- handoffs lists hand-offs of one state, oldest first, or one by its id.
-- ARGV: state or hand-off id, limit
-- Reply: {raw ms, now ms, row...}, row = {hand-off view, last report}
-- Errors: not_found
local out = { F(raw), F(now) }
local function add(hid)
  local v = handoff_view(hid)
  if not v then return false end
  local tid = call('HGET', K('handoff:', hid), 'task')
  out[#out + 1] = { v, call('LINDEX', K('reports:', tid), -1) }
  return true
end
if string.sub(ARGV[1], 1, 8) == 'handoff_' then
  if not add(ARGV[1]) then return refuse('not_found', 'kind', 'hand-off') end
  return out
end
for _, hid in ipairs(call('ZRANGE', K('handoffs:', ARGV[1]), 0, num(ARGV[2]) - 1)) do add(hid) end
return out
