-- end_lease does what every end of a lease shares; what becomes of the task is
-- decided elsewhere. deadline spares a look where it is known.
local ended_leases = {} -- by registered agents: {agent, incarnation}

local function end_lease(tid, rid, state, class, deadline)
  deadline = deadline and F(deadline) or call('ZSCORE', K('deadlines'), tid) or NOW
  call('ZREM', K('deadlines'), tid)
  local r = record(K('run:', rid))
  put(r, 'state', state, 'class', class, 'ended', RAW, 'ended_at', NOW, 'deadline', deadline)
  r.state, r.deadline = state, deadline
  wake('task ' .. tid)
  if r.incarnation == nil or r.key == nil then pick(r[1], 'agent', 'incarnation', 'key') end
  if r.key and r.key ~= '' then call('ZREM', K('leases-of:', r.key), tid) end
  if num(r.incarnation) > 0 then
    call('ZREM', K('holder:', r.agent .. ':' .. r.incarnation), tid)
    ended_leases[#ended_leases + 1] = { r.agent, r.incarnation }
  end
end

-- A draining agent that has given up its last lease is done, in the same step
-- and after the word about the lease.
at_the_end = function()
  for _, g in ipairs(ended_leases) do
    local id, a = g[1], record(K('agent:', g[1]))
    if a.status == nil then pick(a[1], 'status', 'incarnation') end
    if a.status == 'draining' and a.incarnation == g[2] and call('ZCARD', holder(id, a)) == 0 then
      lifecycle(id, agent(id), 'deregistered', 'drain_completed', 'server')
    end
  end
end
