-- flags: allow-oom
-- needs: exec fence inbox
-- urgent
-- reads: task 1, run 2, deadlines 1
-- renew extends a lease that still holds to a full window from now; it never
-- revives one and never shortens one.
-- ARGV: task, run, secret, presented token, the key that must have acquired the lease or ''
-- Reply: {raw ms, ttl ms, token, ms since the last tool call or '', last nudge JSON or '',
--   pending_execs, ms that were left or '' when it confirms the grant, newest_unread or ''}. It has no names,
--   since no verb runs as often as this one.
-- Errors: those of fenced; unauthenticated if another key has acquired the lease
local tid, rid = ARGV[1], ARGV[2]
local t, r, deadline, err = fenced(tid, rid, ARGV[3], ARGV[4], false, ARGV[5])
if err then return err end -- @renew-refused
local left = r.confirmed == '1' and F(deadline - now) or ''
local d = math.max(deadline, now + num(r.window)) -- @renewed-window
call('ZADD', K('deadlines'), F(d), tid)
put(r, 'confirmed', '1', 'renewals', F(num(r.renewals) + 1))
return { RAW, F(d - now), r.token, r.active and F(math.max(0, now - num(r.active))) or '', r.nudge or '', -- @nudge
  pending_execs(rid, r, ''), left, newest_unread(tid, r) or '' }
