-- needs: end_lease retry_policy
-- expire_lease ends a lease that its holder did not give back, with one event.
-- deadline is when its process is gone for certain, where that is not the lease's own.
local function expire_lease(tid, t, class, reason, actor, deadline)
  local rid = t.run
  local r = pick(K('run:', rid), 'agent', 'token', 'incarnation', 'key')
  end_lease(tid, rid, 'expired', class, deadline)
  local state, failures, facts = apply_retry_policy(tid, t, rid, class, true)
  add_total('expired:' .. class, 1)
  emit('lease.expired', { task = tid, run = rid, agent = r.agent, token = r.token, actor = actor, reason = reason },
    '{"state":' .. quote(state) .. ',"failures":' .. F(failures) .. ',"class":' .. quote(class) ..
    ',"reason":' .. quote(reason) .. before_after('state', 'leased', state) .. facts .. '}')
end

-- reclaim_deadline returns until when the holder of a void lease may reclaim it. A holder whose
-- process has exited does not reclaim it.
local function reclaim_deadline(t)
  if num(t.token) > floor or call('HGET', K('run:', t.run), 'exited') == '1' then return 0 end -- @grace-of-process
  return num(call('HGET', META, 'adopted')) + GRACE
end
