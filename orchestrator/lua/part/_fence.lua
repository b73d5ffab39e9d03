-- needs: agent
-- fenced is the one definition of "still holds". It returns task, run and
-- deadline, or the refusal; the first test that fails answers. A lease from
-- before an adoption holds for nothing but to be reclaimed, whatever its
-- deadline says: store time stood still while the store was away. Of task and
-- run it reads what most verbs need. If key is not empty, a lease that was acquired with another
-- key is refused first, with the same words as one that does not exist.
local function fenced(tid, rid, secret, presented, reclaiming, key)
  local r, t = record(K('run:', rid)), record(K('task:', tid))
  if (key or '') ~= '' and r.key ~= key then -- @same-key
    return nil, nil, nil, refuse('unauthenticated', 'kind', 'lease')
  end
  if r.secret ~= secret then return nil, nil, nil, refuse('lease_expired', 'cause', 'unknown') end -- @same-secret
  if r.task ~= tid then return nil, nil, nil, refuse('task_mismatch') end -- @same-task
  if not t.state then return nil, nil, nil, refuse('lease_expired', 'cause', 'deleted') end
  if t.state == 'cancelled' or cancelled_ancestor(t) then -- @cancelled-above
    return nil, nil, nil, refuse('task_cancelled')
  end

  local current, mine, shown = num(t.token), num(r.token), num(presented)
  -- A void lease may show a token that only the store that was lost has granted.
  if mine <= floor and shown <= floor and r.state == 'running' and t.run == rid then shown = 0 end
  local owner = t.state == 'leased' and t.run or '-'
  if shown > current then -- @token-known
    return nil, nil, nil, refuse('unknown_fence', 'presented', F(shown), 'current', F(current))
  end
  -- Showing the current token is not a lie; whether this lease has it comes next.
  if shown > 0 and shown < current and not string.find(r.tokens, ',' .. F(shown) .. ',', 1, true) then -- @own-tokens
    if owner == rid then owner = 'own' end
    return nil, nil, nil, refuse('stale_fence', 'presented', F(shown), 'current', F(current), 'owner', owner)
  end
  if mine < current then -- @newest-token
    return nil, nil, nil, refuse('stale_fence', 'presented', F(mine), 'current', F(current), 'owner', owner)
  end

  if r.state == 'expired' then
    return nil, nil, nil, refuse('lease_expired', 'cause', r.class, 'presented', F(mine), 'current', F(current))
  end
  local deadline = num(call('ZSCORE', K('deadlines'), tid))
  if r.state ~= 'running' or t.state ~= 'leased' or t.run ~= rid then -- @run-holds
    return nil, nil, nil, refuse('lease_released', 'cause', r.class or r.state, 'state', t.state)
  end
  if mine <= floor and not reclaiming then -- @above-floor
    return nil, nil, nil, refuse('reclaim_required', 'presented', F(mine), 'current', F(current))
  end
  local lost = void_reason(r)
  if lost then -- @holder-lives
    return nil, nil, nil, refuse('lease_expired', 'cause', lost, 'presented', F(mine), 'current', F(current))
  end
  if mine <= floor then return t, r, deadline end
  if now >= deadline then -- @holds-deadline
    return nil, nil, nil, refuse('lease_expired', 'cause', 'time', 'presented', F(mine), 'current', F(current))
  end
  return t, r, deadline
end

-- confirmed_deadline is the deadline of a lease from this call on: the first one shows
-- that it was received and starts the full window. It never shortens a deadline.
local function confirmed_deadline(r, deadline)
  return r.confirmed == '1' and deadline or math.max(deadline, now + num(r.window))
end

-- confirm_lease notes that a lease was received, and returns the deadline from this call on. A call that ends the lease
-- need not confirm it.
local function confirm_lease(tid, r, deadline)
  if r.confirmed == '1' then return deadline end
  local ends = confirmed_deadline(r, deadline)
  call('ZADD', K('deadlines'), F(ends), tid) -- @first-call-confirms
  put(r, 'confirmed', '1')
  return ends
end

-- repeated_answer finds the answer of a closing verb that this run made before with the
-- same content: a repeat, which does not hold any more, gets the same answer.
local function repeated_answer(tid, rid, secret, verb, hash) -- @repeats-answer
  local r = call('HMGET', K('run:', rid), 'task', 'secret', 'closed')
  if r[1] == tid and r[2] == secret and r[3] then -- @repeat-has-secret
    local was, state = string.match(r[3], '^(%S+) (%S+)$')
    if was == verb .. ':' .. hash then return state end -- @same-verb
  end
end
