-- flags: allow-oom
-- trace_advance moves on the position up to which events are exported as traces, by
-- compare-and-set, so that each event is exported by one process. The first caller of a
-- namespace sets the position to its newest event.
-- ARGV: position before, or '' to read it; position after
-- Reply: position, moved (1 if this call moved it)
local at = call('HGET', META, 'traced')
if not at then
  at = meta.seq or '0'
  call('HSET', META, 'traced', at)
elseif at == ARGV[1] and num(ARGV[2]) > num(at) then -- @exports-once
  call('HSET', META, 'traced', ARGV[2])
  return named{ position = ARGV[2], moved = 1 }
end
return named{ position = at, moved = 0 }
