-- needs: agent
-- deregister_if_drained ends a draining agent that has given up its last lease.
local function deregister_if_drained(id, incarnation)
  local a = pick(K('agent:', id), 'status', 'incarnation')
  if a.status == 'draining' and a.incarnation == incarnation and call('ZCARD', leases_key(id, a)) == 0 then -- @drained
    set_agent_status(id, read_agent(id), 'deregistered', 'drain_completed', 'server')
  end
end

-- end_lease does what every end of a lease shares. Its caller decides the next state of the task. A
-- caller that knows the deadline passes it, which spares a read. A draining agent is deregistered
-- in the same step, after the word about the lease.
local function end_lease(tid, rid, state, class, deadline)
  deadline = deadline and F(deadline) or call('ZSCORE', K('deadlines'), tid) or NOW
  call('ZREM', K('deadlines'), tid) -- @leaves-deadlines
  local r = record(K('run:', rid))
  put(r, 'state', state, 'class', class, 'ended', RAW, 'ended_at', NOW, 'deadline', deadline)
  wake('task ' .. tid)
  call('RPUSH', K('uncounted'), rid) -- @counts-end
  if r.key and r.key ~= '' then call('ZREM', K('leases-of:', r.key), tid) end
  if num(r.incarnation) > 0 then
    call('ZREM', K('holder:', r.agent .. ':' .. r.incarnation), tid) -- @leaves-holder
    local id, incarnation = r.agent, r.incarnation
    defer(function() deregister_if_drained(id, incarnation) end)
  end
end
