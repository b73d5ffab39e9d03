-- flags: allow-oom
-- identify tells which server this is and which one the namespace was adopted
-- on. It runs without store time, since there may be no meta record.
-- clockless
-- ARGV: none
-- Reply: server (its identity), role, store (id), adopted (the identity that was adopted), floor, seq,
--   granted (grants ever), format (that is stored; none without a namespace), known (that this build stores),
--   migrating (how far the conversion is, while it is under way)
-- Errors: store_newer
local here, role = identity()
local m = call('HMGET', META, 'store', 'identity', 'floor', 'seq', 'granted', 'format', 'migrating')
return newer_format(m[6]) or named{ server = here, role = role, store = m[1], adopted = m[2], floor = m[3], seq = m[4],
  granted = m[5], format = m[1] and (m[6] or '1'), known = F(FORMAT), migrating = m[7] }
