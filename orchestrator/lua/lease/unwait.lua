-- flags: allow-oom
-- unwait forgets a waiter whose client went away, so that explain does not
-- count on it.
-- ARGV: waiter
-- Reply: 1 when it was there, else 0
return call_now('ZREM', K('waiters'), ARGV[1])
