-- needs: fence inbox message nudge toolcalls unread
-- reads: task 1, run 2, deadlines 1
-- read_messages answers the holder of a lease the oldest messages that wait for its task and for its
-- agent, and acknowledges them in the same step. The same request again gets the same messages.
-- alone
-- ARGV: task, run, secret, presented token, which look of a call this is: only, first or again,
--   ms that the call waits from now on, request id, most messages, peek 0|1
-- Reply: rows (message_row), nudge (JSON or ''), unread; or {} when this call ended the run
-- Errors: those of fenced
local tid, rid, look, req, most = ARGV[1], ARGV[2], ARGV[5], ARGV[7], num(ARGV[8])
local t, r, deadline, err = fenced(tid, rid, ARGV[3], ARGV[4])
if err then return err end
deadline = confirm_lease(tid, r, deadline)
pick(r[1], 'read_by', 'read_ids')
local ids, again = {}, r.read_by == req
if again then -- @reads-again
  for id in string.gmatch(r.read_ids, '%S+') do ids[#ids + 1] = id end
else
  ids = oldest_unread(tid, r, most)
end
local nudge
if again then
  nudge = nudge_for_call(r, '')
else
  nudge = note_wait_call(tid, rid, t, r, deadline, 'read_messages ' .. (ids[1] or ''), 'read_messages', look, #ids > 0,
    num(ARGV[6]))
end
if not nudge then return {} end
if not again and ARGV[9] == '0' and #ids > 0 then -- @peeks
  acknowledge_messages(ids)
  put(r, 'read_by', req, 'read_ids', table.concat(ids, ' ')) -- @remembers-read
end
-- What is shown is as it is from now on, so that a repeat has the same answer.
local rows = message_rows(ids)
return named{ rows = rows, nudge = nudge, unread = unread_of(tid, r) }
