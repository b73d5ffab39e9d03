-- flags: allow-oom
-- measure adds up the memory that the next keys of the namespace take. A pass
-- looks at all keys, some in each step; its sum then is the size of the
-- namespace. A later pass begins after a pause.
-- alone
-- ARGV: about how many keys of the store to look at, ms between two passes
-- Reply: how many keys of the namespace were measured
local pause = num(ARGV[2])
local s = pick(K('size'), 'cursor', 'sum', 'ended')
local cursor = s.cursor or '0'
local since = raw - num(s.ended)
-- A clock that was set back does not make the pause longer.
if cursor == '0' and since >= 0 and since < pause then return 0 end
local got = call('SCAN', cursor, 'MATCH', P .. '*', 'COUNT', ARGV[1])
local bytes = cursor == '0' and 0 or num(s.sum)
for _, key in ipairs(got[2]) do
  bytes = bytes + (call('MEMORY', 'USAGE', key) or 0)
end
put(s, 'cursor', got[1], 'sum', F(bytes), unpack(got[1] == '0' and { 'bytes', F(bytes), 'ended', RAW } or {}))
return #got[2]
