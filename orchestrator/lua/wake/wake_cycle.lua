-- needs: wake lane_marks
-- wake_cycle begins a cycle of the scheduler, if the present one was not begun by another process, and
-- takes the sessions that are due. One that nobody plans is due again a minute later.
-- ARGV: most sessions, 1 to go on with the cycle that this process has begun, name under which the process
--   has the directory of policy files or ''
-- Reply: begun 0|1, sessions (list of session and agent name), lanes (list of lane and lane_mark; the best 100),
--   waiters (requests that wait for a lease, at most 200)
local most, cycle = num(ARGV[1]), math.floor(now / wakes.CYCLE)
local key = K('wake-cycle')
local begun = num(call('GET', key)) < cycle or ARGV[2] == '1'
local lock = call('HMGET', K('policy-lock'), 'holder', 'until')
local other = num(lock[2]) > now and lock[1] ~= ARGV[3] -- @wakes-with-directory
if not begun or other or paused ~= '' then return named{ begun = 0 } end -- @one-scheduler
call('SET', key, F(cycle))
local due = {}
for _, sid in ipairs(call('ZRANGE', K('wake-due'), '-inf', NOW, 'BYSCORE', 'LIMIT', 0, most)) do
  local name = call('HGET', K('asession:', sid), 'name')
  if name and name ~= '' then
    call('ZADD', K('wake-due'), F(now + 2 * wakes.CYCLE), sid) -- @due-again
    due[#due + 1] = sid
    due[#due + 1] = name
  else
    call('ZREM', K('wake-due'), sid)
  end
end
return named{ begun = 1, sessions = due, lanes = lane_marks(), waiters = waiting_requests() }
