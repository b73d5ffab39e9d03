-- flags: allow-oom
-- log reads a piece of a run's output, and how things stand.
-- alone
-- ARGV: task, run or '' for the latest, stream, offset, limit
-- Reply: run, offset (of the first byte), data, before (the byte before them), latest (run), task_state, run_state,
--   closed (1 when the stream is closed), marks (of each piece)
-- Errors: not_found
local tid, rid, stream, offset, limit = ARGV[1], ARGV[2], ARGV[3], num(ARGV[4]), num(ARGV[5])
local t = call('HMGET', K('task:', tid), 'run', 'state')
local latest = t[1]
if not latest then return refuse('not_found', 'kind', 'task') end
if rid == '' then rid = latest end
if rid == '' then return named{ task_state = t[2] } end
local r = call('HMGET', K('run:', rid), 'task', stream .. '_start', stream .. '_end', 'state', stream .. '_closed')
if r[1] ~= tid then return refuse('not_found', 'kind', 'run') end
local at, finish = num(r[2]), num(r[3])
if offset < at then offset = at end
if offset > finish then offset = finish end
local out, size, before, shown_marks = {}, 0, '', {}
local marks = call('LRANGE', K('marks:', rid .. ':' .. stream), 0, -1)
local chunks = call('LRANGE', K('log:', rid .. ':' .. stream), 0, -1)
local skip = #chunks - #marks -- pieces of an earlier version have none
for i, chunk in ipairs(chunks) do
  if at < offset and at + #chunk >= offset then before = string.sub(chunk, offset - at, offset - at) end
  if at + #chunk > offset and size < limit then
    local piece = string.sub(chunk, math.max(offset - at, 0) + 1)
    piece = string.sub(piece, 1, limit - size)
    out[#out + 1] = piece
    size = size + #piece
    shown_marks[#shown_marks + 1] = marks[i - skip]
  end
  at = at + #chunk
end
return named{
  run = rid, offset = F(offset), data = table.concat(out), before = before, latest = latest, task_state = t[2],
  run_state = r[4], closed = r[5], marks = shown_marks,
}
