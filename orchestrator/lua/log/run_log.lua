-- needs: evidence
-- run_log appends output of a run; the last bytes of each stream are kept. Bytes
-- below the known end are ignored, a gap is refused with the offset expected.
-- Once the run has said that nothing follows, more is refused.
-- Beside each piece stand its marks, which say when it was written.
-- alone
-- ARGV: task, run, secret, presented token, stream, offset, bytes, marks or '', 1 when nothing follows,
--   how many bytes are kept
-- Reply: offset of the next byte
-- Errors: lease_expired, task_mismatch, stale_fence, unknown_fence, offset_conflict,
--   state_conflict (its end was told)
local tid, rid, stream, offset, data = ARGV[1], ARGV[2], ARGV[5], num(ARGV[6]), ARGV[7]
local keep = num(ARGV[10])
local r, err = authenticate_run(tid, rid, ARGV[3], ARGV[4])
if err then return err end
local known = num(r[stream .. '_end'])
if offset > known then return refuse('offset_conflict', 'expected', F(known), 'presented', F(offset)) end
local fresh = string.sub(data, known - offset + 1) -- @fresh-output
local closing = ARGV[9] == '1' and r[stream .. '_closed'] ~= '1'
if #fresh == 0 and not closing then return known end
if r[stream .. '_closed'] == '1' then -- @output-closed
  return refuse('state_conflict.log_closed', 'cause', 'log_closed', 'expected', F(known))
end
local finish = known + #fresh
if #fresh > 0 then
  local key, marks = K('log:', rid .. ':' .. stream), K('marks:', rid .. ':' .. stream)
  local start = num(r[stream .. '_start'])
  call('RPUSH', key, fresh)
  call('RPUSH', marks, ARGV[8] ~= '' and ARGV[8] or F(known) .. ':' .. RAW)
  while finish - start > keep do -- @bounds-output
    local first = call('LINDEX', key, 0)
    if finish - start - #first < keep then break end
    call('LPOP', key)
    call('LPOP', marks)
    start = start + #first
  end
  put(r, stream .. '_end', F(finish), stream .. '_start', F(start))
end
if closing then put(r, stream .. '_closed', '1') end
wake('log ' .. tid)
return finish
