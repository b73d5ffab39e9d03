-- flags: allow-oom
-- reports lists the latest progress reports of a task, oldest first, as many as
-- fit into one reply.
-- alone
-- ARGV: task
-- Reply: "seq at run token json"...
-- Errors: not_found
if call('EXISTS', K('task:', ARGV[1])) == 0 then return refuse('not_found', 'kind', 'task') end
local key = K('reports:', ARGV[1])
local newest, size = {}, 0
for i = 1, call('LLEN', key) do
  local row = call('LINDEX', key, -i)
  size = size + #row
  if size > MAX_REPLY and i > 1 then break end
  newest[i] = row
end
local out = {}
for i = #newest, 1, -1 do out[#out + 1] = newest[i] end
return out
