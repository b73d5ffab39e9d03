-- flags: allow-oom
-- needs: agent message
-- conversation lists the messages from and to a task or an agent, the newest of those before a cursor.
-- alone
-- ARGV: task or agent, actor or '' (may read any), operator 0|1, number before which they are or 0, most messages
-- Reply: rows (message_row, newest first), unread, more 0|1
-- Errors: not_found, forbidden
local of = ARGV[1]
if string.sub(of, 1, 5) == 'task_' then
  if not call('HGET', K('task:', of), 'state') then return refuse('not_found', 'kind', 'task') end
else
  local a = read_agent(of)
  if not a.status then return refuse('not_found', 'kind', 'agent') end
  if a.owner ~= ARGV[2] and ARGV[3] ~= '1' then return refuse('forbidden', 'kind', 'agent') end -- @own-conversation
end
local most = num(ARGV[5])
local ids = call('ZRANGE', K('messages:', of), ARGV[4] == '0' and '+inf' or '(' .. ARGV[4], '-inf', 'BYSCORE', 'REV',
  'LIMIT', 0, most + 1)
local more = #ids > most
ids[most + 1] = nil
local rows, shown = message_rows(ids)
return named{ rows = rows, unread = call('ZCARD', K('unread:', of)), more = (more or #shown < #ids) and 1 or 0 }
