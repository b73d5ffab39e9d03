-- flags: allow-oom
-- needs: session_row
-- agent_sessions lists sessions, the newest first, or one by its id.
-- alone
-- ARGV: id of a session or '', id of an agent or '', number before which they began or 0, most sessions
-- Reply: now and known (from when reports count; store time, ms), rows (session_row), more 0|1
-- Errors: not_found
local rows, most, more = {}, num(ARGV[4]), 0
if ARGV[1] ~= '' then
  rows[1] = session_row(ARGV[1])
  if not rows[1] then return refuse('not_found', 'kind', 'agent_session') end
else
  local key = ARGV[2] ~= '' and K('asessions:', ARGV[2]) or K('asessions')
  local ids = call('ZRANGE', key, ARGV[3] == '0' and '+inf' or '(' .. ARGV[3], '-inf', 'BYSCORE', 'REV', 'LIMIT', 0,
    most + 1)
  more = #ids > most and 1 or 0
  for i = 1, math.min(most, #ids) do rows[#rows + 1] = session_row(ids[i]) end
end
return named{ now = NOW, known = reports_count_from(), rows = rows, more = more }
