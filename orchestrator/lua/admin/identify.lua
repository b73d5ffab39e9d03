-- flags: allow-oom
-- identify tells which server this is and which one the namespace was adopted
-- on. It runs without store time, since there may be no meta record.
-- clockless
-- ARGV: none
-- Reply: {identity, role, store id or nil, identity adopted, floor, seq,
--   grants ever}
-- Errors: store_newer
local here, role = identity()
local m = call('HMGET', META, 'store', 'identity', 'floor', 'seq', 'granted', 'format')
return newer_format(m[6]) or { here, role, m[1], m[2], m[3], m[4], m[5] or '0' }
