-- needs: agent expire stale_entry
-- The ways in which an agent stops being a participant. One write makes its
-- leases void; what follows is their book-keeping.
local BATCH = 100 -- leases that one step ends

-- end_agent_leases ends up to limit leases of one registration and returns how many it
-- looked at. Only a death counts as a failure of the tasks. An adapter kills
-- what it runs before its agent can have died of silence, so the next runs of
-- its tasks need not wait for a process any longer than that.
local function end_agent_leases(id, incarnation, reason, actor, limit)
  local key, dark = K('holder:', id .. ':' .. incarnation), now
  if reason ~= 'agent_dead' then
    local a = read_agent(id)
    dark = a.incarnation == incarnation and num(a.beat_at) + num(a.dead) * 1000 or math.huge
  end
  local tasks = call('ZRANGE', key, 0, limit - 1)
  for _, tid in ipairs(tasks) do
    local t = load(K('task:', tid))
    local r = t and t.state == 'leased' and pick(K('run:', t.run), 'agent', 'token', 'incarnation', 'key')
    if r and r.agent == id and r.incarnation == incarnation then
      expire_lease(tid, t, reason == 'agent_dead' and 'agent_dead' or 'released', reason, actor, -- @death-counts
        math.min(dark, num(call('ZSCORE', K('deadlines'), tid)))) -- @silent-until
    else
      remove_stale_entry('holder_extra', key, tid)
    end
  end
  return #tasks
end

-- end_agent ends an agent and its leases, limit of them now, the rest as a chore.
-- It returns how many it ended.
local function end_agent(id, a, to, reason, cause, actor, limit)
  set_agent_status(id, a, to, reason, actor) -- @tells-agent-first
  local n = limit > 0 and end_agent_leases(id, a.incarnation, cause, actor, limit) or 0 -- @then-ends-leases
  if n == limit and call('ZCARD', leases_key(id, a)) > 0 then -- @ends-all-leases
    -- Nothing else has score 0, so these are found at once and hide nothing.
    call('ZADD', K('chores'), '0', 'dead:' .. id .. ':' .. a.incarnation .. ':' .. cause) -- @same-cause
  end
  return n
end
