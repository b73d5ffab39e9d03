-- flags: allow-oom
-- needs: fence inbox message unread
-- reads: task 1, run 2, deadlines 1
-- deliver shows the adapter of a run what waits for its agent, without acknowledging it.
-- alone
-- ARGV: task, run, secret, presented token, most messages
-- Reply: rows (message_row), unread, newest (number of the last message that waits, or 0),
--   history (message_row of the last messages of the task)
-- Errors: those of fenced
local tid, rid = ARGV[1], ARGV[2]
local _, r, _, err = fenced(tid, rid, ARGV[3], ARGV[4])
if err then return err end
local ids = oldest_unread(tid, r, num(ARGV[5]))
for _, id in ipairs(ids) do
  local m = call('HMGET', K('message:', id), 'to', 'delivered')
  if m[1] and not m[2] then call('HSET', K('message:', id), 'delivered', RAW) end -- @notes-delivery
end
local rows = message_rows(ids)
return named{ rows = rows, unread = unread_of(tid, r), newest = newest_unread(tid, r) or 0,
  history = recent_messages(tid) }
