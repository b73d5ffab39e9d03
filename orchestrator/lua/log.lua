-- flags: allow-oom
-- log reads a piece of a run's output.
-- ARGV: task, run or '' for the latest, stream, offset, limit
-- Reply: {run, offset of the first byte, bytes}
-- Errors: not_found
local tid, rid, stream, offset, limit = ARGV[1], ARGV[2], ARGV[3], num(ARGV[4]), num(ARGV[5])
local latest = call('HGET', K('task:', tid), 'run')
if not latest then return refuse('not_found', 'kind', 'task') end
if rid == '' then rid = latest end
if rid == '' then return { '', '0', '' } end
local r = call('HMGET', K('run:', rid), 'task', stream .. '_start', stream .. '_end')
if r[1] ~= tid then return refuse('not_found', 'kind', 'run') end
local at, finish = num(r[2]), num(r[3])
if offset < at then offset = at end
if offset > finish then offset = finish end
local out, size = {}, 0
for _, chunk in ipairs(call('LRANGE', K('log:', rid .. ':' .. stream), 0, -1)) do
  if at + #chunk > offset and size < limit then
    local piece = string.sub(chunk, math.max(offset - at, 0) + 1)
    piece = string.sub(piece, 1, limit - size)
    out[#out + 1] = piece
    size = size + #piece
  end
  at = at + #chunk
end
return { rid, F(offset), table.concat(out) }
