-- end_lease does what every end of a lease shares; what becomes of the task is
-- decided elsewhere. deadline spares a look where it is known.
local function end_lease(tid, rid, state, class, deadline)
  deadline = deadline and F(deadline) or call('ZSCORE', K('deadlines'), tid) or NOW
  call('ZREM', K('deadlines'), tid)
  local r = record(K('run:', rid))
  put(r, 'state', state, 'class', class, 'ended', RAW, 'ended_at', NOW, 'deadline', deadline)
  r.state, r.deadline = state, deadline
  wake('task ' .. tid)
end
