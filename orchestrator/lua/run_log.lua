-- needs: evidence
-- run_log appends output of a run; the last MiB of each stream is kept. Bytes
-- below the known end are ignored, a gap is refused with the offset expected.
-- ARGV: task, run, secret, presented token, stream, offset, bytes
-- Reply: offset of the next byte
-- Errors: lease_expired, task_mismatch, stale_fence, unknown_fence, offset_conflict
local KEEP = 1048576
local rid, stream, offset, data = ARGV[2], ARGV[5], num(ARGV[6]), ARGV[7]
local r, err = witness(ARGV[1], rid, ARGV[3], ARGV[4])
if err then return err end
local known = num(r[stream .. '_end'])
if offset > known then return refuse('offset_conflict', 'expected', F(known), 'presented', F(offset)) end
local fresh = string.sub(data, known - offset + 1)
if #fresh == 0 then return known end
local key = K('log:', rid .. ':' .. stream)
local finish = known + #fresh
local start = num(r[stream .. '_start'])
call('RPUSH', key, fresh)
while finish - start > KEEP do
  local first = call('LINDEX', key, 0)
  if finish - start - #first < KEEP then break end
  call('LPOP', key)
  start = start + #first
end
put(r, stream .. '_end', F(finish), stream .. '_start', F(start))
return finish
