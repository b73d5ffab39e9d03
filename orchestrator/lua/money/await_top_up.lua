-- needs: charge fence money
-- await_top_up tells the holder of a lease whether its envelope was topped up
-- since a call was refused, or since it began to wait.
-- ARGV: task, run, secret, presented token
-- Reply: toppedUp, available (tokens and nano-dollars), locked
-- Errors: those of fenced
local tid = ARGV[1]
local t, r, deadline, err = fenced(tid, ARGV[2], ARGV[3], ARGV[4])
if err then return err end
confirm_lease(tid, r, deadline)
put(r, 'active', NOW)
local e = envelope(tid)
if not pick(r[1], 'tops_seen').tops_seen then put(r, 'tops_seen', e.tops or '0') end
local more = r.tops_seen and num(e.tops) > num(r.tops_seen)
return named{ toppedUp = more and 1 or 0, available = { free_amount(e) }, locked = is_locked(e) and 1 or 0 }
