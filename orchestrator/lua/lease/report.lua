-- needs: fence nudge seen toolcalls touch unread
-- reads: task 1, run 2, deadlines 1
-- report stores a progress report and pins it. A requestId seen among the
-- run's last 32 gets the answer it got before.
-- ARGV: task, run, secret, presented token, request id or '', content hash,
--   report JSON, the call in words, most bytes of the reports of a task, the beginning of its summary,
--   most reports of a task
-- Reply: seq, nudge (JSON or ''), unread; or {} when this call ended the run
-- Errors: those of fenced; idempotency_conflict
local tid, rid, req = ARGV[1], ARGV[2], ARGV[5]
local t, r, deadline, err = fenced(tid, rid, ARGV[3], ARGV[4])
if err then return err end
local was, changed = seen_before(rid, req, ARGV[6])
if changed then return changed end
if was then
  return named{ seq = was, nudge = nudge_for_call(r, req), unread = unread_of(tid, r) } -- @repeats-nudge
end
deadline = confirm_lease(tid, r, deadline)
local nudge = note_tool_call(tid, rid, t, r, deadline, 'report_progress ' .. ARGV[6], ARGV[8], req, req)
if not nudge then return {} end
local seq = num(t.reports) + 1
put(t, 'reports', F(seq)) -- @counts-reports
touch(tid, t)
put(r, 'report', ARGV[10], 'report_at', RAW)
emit('task.progress', { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid },
  '{"state":"leased","seq":' .. F(seq) .. '}')
local unread = unread_of(tid, r)
local list, entry = K('reports:', tid), F(seq) .. ' ' .. RAW .. ' ' .. rid .. ' ' .. r.token .. ' ' .. ARGV[7]
-- The report is written at once: if that is refused, the request must not be known.
local kept, size = call_now('RPUSH', list, entry), num(pick(t[1], 'reports_size').reports_size) + #entry
while kept > 1 and (kept > num(ARGV[11]) or size > num(ARGV[9])) do -- @bounds-reports
  kept, size = kept - 1, size - #call('LPOP', list) -- @uncounts-reports
end
put(t, 'reports_size', F(math.max(0, size)))
note_seen(rid, req, ARGV[6], F(seq))
return named{ seq = seq, nudge = nudge, unread = unread }
