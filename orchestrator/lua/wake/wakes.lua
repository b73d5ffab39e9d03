-- flags: allow-oom
-- wakes lists decisions about the wakes of an agent name, newest first.
-- alone
-- ARGV: agent name, number before which they are or 0, most rows
-- Reply: raw, rows (JSON), more 0|1
local most = num(ARGV[3])
local rows = call('ZRANGE', K('wakes:', ARGV[1]), ARGV[2] == '0' and '+inf' or '(' .. ARGV[2], '-inf', 'BYSCORE', 'REV',
  'LIMIT', 0, most + 1)
local more = #rows > most and 1 or 0
rows[most + 1] = nil
return named{ raw = RAW, rows = rows, more = more }
