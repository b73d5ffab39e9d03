-- flags: allow-oom
-- needs: view
-- handoffs lists hand-offs of one state, oldest first, as many as fit into one
-- reply, or one by its id.
-- ARGV: state or hand-off id, limit
-- Reply: {raw ms, now ms, row...}, row = {hand-off view, last report}
-- Errors: not_found
local out, size = { RAW, NOW }, 0
local function add(hid)
  local v = handoff_view(hid)
  if not v then return false end
  local tid = call('HGET', K('handoff:', hid), 'task')
  local report = call('LINDEX', K('reports:', tid), -1)
  size = size + (report and #report or 0) + (v[3] and #v[3] or 0) + call('HSTRLEN', K('handoff:', hid), 'body')
  out[#out + 1] = { v, report }
  return true
end
if string.sub(ARGV[1], 1, 8) == 'handoff_' then
  if not add(ARGV[1]) then return refuse('not_found', 'kind', 'hand-off') end
  return out
end
for _, hid in ipairs(call('ZRANGE', K('handoffs:', ARGV[1]), 0, num(ARGV[2]) - 1)) do
  add(hid)
  if size > MAX_REPLY then break end
end
return out
