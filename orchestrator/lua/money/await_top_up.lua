-- needs: charge fence money toolcalls unread
-- reads: task 1, run 2, deadlines 1
-- await_top_up tells the holder of a lease whether its envelope was topped up
-- since a call was refused, or since it began to wait.
-- ARGV: task, run, secret, presented token, which look of a call this is: only, first or
--   again; none if it does not count as a call of the tool; ms that the call waits from now on
-- Reply: toppedUp, available (tokens and nano-dollars), locked, nudge (JSON or ''), unread; or {} when
--   this call ended the run
-- Errors: those of fenced
local tid, rid = ARGV[1], ARGV[2]
local t, r, deadline, err = fenced(tid, rid, ARGV[3], ARGV[4])
if err then return err end
deadline = confirm_lease(tid, r, deadline)
local e = envelope(tid)
if not pick(r[1], 'tops_seen').tops_seen then put(r, 'tops_seen', e.tops or '0') end
local more = r.tops_seen and num(e.tops) > num(r.tops_seen)
local nudge = ''
if ARGV[5] == 'none' then
  put(r, 'active', NOW)
else
  nudge = note_wait_call(tid, rid, t, r, deadline, 'await_top_up', 'await_top_up', ARGV[5], more, num(ARGV[6]))
  if not nudge then return {} end
end
return named{ toppedUp = more and 1 or 0, available = { free_amount(e) }, locked = is_locked(e) and 1 or 0,
  nudge = nudge, unread = unread_of(tid, r) }
