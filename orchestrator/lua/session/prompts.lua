-- flags: allow-oom
-- needs: prompt_row
-- prompts lists the prompts of a session, newest first, as many as fit into one reply.
-- alone
-- ARGV: session, number of the prompt before which they are or 0, most prompts
-- Reply: rows (prompt_row), next (number of the last row, if there are more)
-- Errors: not_found
local sid, most = ARGV[1], num(ARGV[3])
if call('EXISTS', K('asession:', sid)) == 0 then return refuse('not_found', 'kind', 'agent_session') end
local ids = call('ZRANGE', K('session-prompts:', sid), ARGV[2] == '0' and '+inf' or '(' .. ARGV[2], '-inf', 'BYSCORE',
  'REV', 'LIMIT', 0, most + 1, 'WITHSCORES')
local rows, size, last = {}, 0, nil
for i = 1, #ids, 2 do
  if #rows == most or size > MAX_REPLY then return named{ rows = rows, next = last } end -- @bounds-listed-prompts
  last = F(num(ids[i + 1]))
  local row, bytes = prompt_row(ids[i], 0)
  size = size + bytes
  rows[#rows + 1] = row -- one that was kept long enough is gone
end
return named{ rows = rows }
