-- needs: agent instructions session
-- session_commands answers the adapter of an agent what waits for its sessions, and the commands that its
-- heartbeats carry. Of the prompts of a session it answers the first.
-- alone
-- ARGV: agent, actor, operator 0|1, incarnation, ids of commands that are known, between commas; number of a message
--   or '' if messages do not count
-- Reply: rows: id, command, session, text, left (ms until the deadline); pending (command ids and JSON);
--   instructions (if there are rows); newest (number of the last unread message to the agent, if it is above that)
-- Errors: not_found, forbidden, agent_gone, judge_due
local id, known = ARGV[1], ARGV[5]
local a = read_agent(id, 'commands')
local no = sessions.check_adapter(a, ARGV[2], ARGV[3], ARGV[4])
if no then return no end -- @commands-refused
local function is_new(command) return not string.find(known, ',' .. command .. ',', 1, true) end
local rows = {}
for _, pid in ipairs(call('ZRANGE', K('ready-prompts:', id), 0, -1)) do
  local p = pick(K('prompt:', pid), 'session', 'text', 'due', 'wake', 'wake_due')
  if now >= num(p.wake and p.wake_due or p.due) then -- @passes-overdue
    sessions.end_overdue(p.session, id)
  elseif is_new(pid) then
    rows[#rows + 1] = named{ id = pid, command = p.wake and 'wake' or 'prompt', session = p.session, text = p.text,
      left = num(p.due) - now }
  end
end
for _, sid in ipairs(call('ZRANGE', K('stopping:', id), 0, -1)) do
  local stop = pick(K('asession:', sid), 'stop').stop
  if stop and is_new(stop) then rows[#rows + 1] = named{ id = stop, command = 'stop_session', session = sid } end
end
local pending = {}
if num(a.commands) > 0 then
  local flat = call('HGETALL', K('commands:', id))
  for i = 1, #flat, 2 do
    if is_new(flat[i]) then
      pending[#pending + 1] = flat[i]
      pending[#pending + 1] = flat[i + 1]
    end
  end
end
local newest = ARGV[6] ~= '' and call('ZRANGE', K('unread:', id), -1, -1, 'WITHSCORES')[2]
if newest and num(newest) <= num(ARGV[6]) then newest = nil end -- @tells-newer-messages
return named{ rows = rows, pending = pending, instructions = #rows > 0 and instructions_of(id),
  newest = newest and F(num(newest)) }
