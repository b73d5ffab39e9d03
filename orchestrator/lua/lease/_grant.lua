-- needs: agent instructions covers view promote lane runs stale_entry
-- Leasing the next tasks: what grant and advance share.
local FIRST = 30000 -- an unconfirmed lease comes back after this long
local RANGE = 2097152 -- tokens above a floor before the next floor is needed

-- lease_view shows a lease; the second value is about how many bytes it has.
local function lease_view(tid, rid, t, r, deadline)
  local before, report, said, edit = false, false, {}, false
  if r.attempt ~= '1' then
    local runs = runs_of(tid, t, 2)
    before = runs[#runs - 1]
    report, edit = call('LINDEX', K('reports:', tid), -1), call('GET', K('edit:', tid))
  end
  if r.attempt ~= '1' or t.retries then said = answers_of(tid) end
  local input, size = edit or call('GET', K('in:', tid)), report and #report or 0 -- @runs-edit
  for _, answer in ipairs(said) do size = size + #answer end
  return named{
    task = tid, run = rid, token = r.token, attempt = r.attempt, window = t.window, ttl = F(deadline - now),
    spec = call('GET', K('spec:', tid)), input = input, report = report or nil, answers = said,
    previous = before and run_view(before) or nil, workspace = r.workspace, fixes = t.fixes or nil,
    retries = t.retries or nil, note = t.fixes and call('HGET', K('review:', t.fixes), 'note'),
    envelope = call('HMGET', K('env:', tid), 'envelope_t', 'envelope_u'),
    messages = has_messages() and call('ZCARD', K('messages:', tid)) or 0,
    waited = r.attempt == '1' and F(math.max(0, raw - math.max(num(t.created), num(t.not_before)))),
  }, size + (input and #input or 0)
end

-- look_ahead reads what the grants of this call are likely to need of the first tasks of a lane.
local function look_ahead(lane)
  local q = queue_of(lane)
  local last = math.min(#q, q.first + math.max(0, calls_of('grant') + calls_of('advance') - 1))
  for i = q.first, last do
    local id = q[i][1]
    if is_known(K('task:', id)) then break end
    ahead.want('task:', id)
    ahead.want('env:', id)
    ahead.want('spec:', id)
    ahead.want('in:', id)
  end
  ahead.read()
end

-- next_task finds the task to grant next, if there is room for more.
local function next_task(room, ...)
  while true do
    local lane = room and best_covered_lane(covers, ...)
    if not lane then return nil end
    local tid = first_in_lane(lane)
    look_ahead(lane)
    local t = record(K('task:', tid))
    local kept = t.state == 'queued' and t.pin_for == 'retry' and t.pin ~= '' and t.at ~= t.lane
    if kept and not covers(t.lane, ...) then -- @members-only
      undelay(tid, t)
      pull(tid, t)
      push(tid, t, t.lane)
      put(t, 'pin', '')
    elseif t.state == 'queued' then
      if not cancelled_ancestor(t) then return tid, t end -- @grants-none-cancelled
      cancel_queued(tid, t)
    else
      take_from_lane(tid, lane)
      remove_stale_entry('lane_extra', K('lane:', lane), tid)
    end
  end
end

-- lease_task leases a task to an agent; with is the key that acquires it, if any. most
-- is how many runs the task may have before a person has to decide.
local function lease_task(tid, t, rid, secret, token, agent, incarnation, root, actor, with, most)
  local r = { token = F(token), attempt = F(num(t.attempt) + 1), workspace = root ~= '' and (root .. '/' .. rid) or '' }
  local deadline, used = now + math.min(num(t.window), FIRST), num(r.attempt) - num(t.runs_from) -- @first-window
  dequeue(tid, t) -- @leaves-lane
  list_last_run(tid, t)
  new_record(K('run:', rid), { task = tid, secret = secret, token = r.token, tokens = ',' .. r.token .. ',',
    state = 'running', agent = agent, window = t.window, confirmed = '0', attempt = r.attempt, started = RAW,
    workspace = r.workspace, incarnation = incarnation, key = with }) -- @remembers-key
  meta.granted = F(num(meta.granted) + 1)
  if with ~= '' then call('ZADD', K('leases-of:', with), meta.granted, tid) end
  if incarnation ~= '0' then call('ZADD', K('holder:', agent .. ':' .. incarnation), meta.granted, tid) end -- @listed
  call('ZADD', K('deadlines'), F(deadline), tid)
  move(tid, t, 'leased', 'token', r.token, 'attempt', r.attempt, 'run', rid, 'pin', '', 'gate', '',
    unpack(used >= most and { 'runs_used', F(used) } or {})) -- @last-run
  emit('task.leased', { task = tid, run = rid, agent = agent, token = r.token, actor = actor },
    '{"state":"leased","attempt":' .. r.attempt .. ',"windowMs":' .. t.window .. '}')
  return lease_view(tid, rid, t, r, deadline)
end

-- replay shows the leases of an earlier request. If strict is set, it returns nil when one of them
-- has ended. Otherwise it leaves out those that have ended.
local function replay(was, strict)
  local leases = {}
  for tid, rid in string.gmatch(was, '(%S+) (%S+)') do
    local t, r = load(K('task:', tid)), load(K('run:', rid))
    local deadline = num(call('ZSCORE', K('deadlines'), tid))
    if r and t and r.state == 'running' and t.run == rid and now < deadline and not void_reason(r) then -- @still-holds
      leases[#leases + 1] = lease_view(tid, rid, t, r, deadline)
    elseif strict then -- @strict-repeat
      return nil
    end
  end
  return leases
end

-- check_registration looks up the agent that asks, where any agent is registered at
-- all. It returns its record; why it may be given nothing; and whether that is
-- only because it has to be judged first.
local function check_registration(id, by, operator, incarnation)
  local a = meta.incarnations and read_agent(id)
  if not a or not a.status then return nil end
  local no, early = check_allowed(a, by, operator)
  no = no or check_gone(a, incarnation)
  if not no and a.status == 'draining' then no = refuse('agent_draining') end -- @grants-none-draining
  return a, no, early
end

-- answered is how many bytes the grants of a call have in their answers. All verbs of a batch share the bound.
local answered
on_call(function() answered = 0 end)

-- grant is the verb of this name; the first skip ARGV are another's. close ends
-- the lease that comes before, after everything that can refuse the grant; it
-- returns nothing, or an error. From then on nothing is refused.
local function grant(skip, close)
  local by, agent, role, caps, waiter, wait, root, key, body, its_floor, its_grants, incarnation, operator, with,
    most = unpack(ARGV, skip + 1, skip + 15)
  wait = num(wait)
  local asked_before = wait >= 0
  wait = math.abs(wait)
  -- The number of grants falls only when an older state was put back.
  if floor ~= num(its_floor) or num(meta.granted) < num(its_grants) then -- @state-put-back
    return refuse('store_changed')
  end
  -- A key that was revoked while its request waited gets no lease, and does not see the leases of
  -- an earlier request. A lease that is completed in the same step still ends.
  local invalid = with ~= '' and not key_is_live(with) -- @key-lives
  if invalid and not close then return refuse('unauthenticated', 'kind', 'key') end
  local outcome, leases, granted = '', {}, {}
  local function answer()
    return named{ outcome = outcome, raw = RAW, seq = meta.seq, grants = meta.granted or '0', leases = leases,
      instructions = #leases > 0 and instructions_of(agent) }
  end
  local was, err = find_request(key, body)
  if err then return err end
  local a, no, early = check_registration(agent, by, operator, incarnation)
  if a and a.role == 'attached' then role = '!' end -- @attached-takes-its-own
  -- A lease that comes before can end all the same, and what was granted to an
  -- agent that drains by now is still its own.
  if early or no and not close and not (was and a.status == 'draining') then return no end
  err = close and close() -- @closes-first
  if err then return err end
  no = no or invalid
  if was and not invalid then -- @repeats-grant
    outcome, leases = 'repeated', replay(was, not close)
    return leases and answer() or refuse('lease_expired', 'cause', 'replayed')
  end

  if no then
    outcome = 'barred'
  elseif paused ~= '' then -- @grants-none-paused
    outcome = 'paused'
  else
    promote(10)
    local window
    for i = 16, #ARGV - skip, 2 do
      local tid, t = next_task(#granted == 0 or answered < MAX_REPLY, agent, role, caps)
      if not tid then break end
      local token = math.max(num(t.token), floor) + 1 -- @token-rises
      if token > floor + RANGE then
        if #granted > 0 then break end
        if not close then
          save() -- what was promoted stays so
          return refuse('floor_exhausted')
        end
        outcome = 'exhausted'
        break
      end
      local rid, secret = ARGV[skip + i], ARGV[skip + i + 1]
      local view, bytes = lease_task(tid, t, rid, secret, token, agent, a and a.incarnation or '0', root, by, with,
        num(most))
      answered, window = answered + bytes, window or num(t.window)
      leases[#leases + 1] = view
      granted[#granted + 1] = tid .. ' ' .. rid
    end
    if #granted > 0 then
      remember(key, body, table.concat(granted, ' '), window) -- @remembers-grant
    end
  end

  if no or #leases > 0 or wait == 0 then
    if asked_before and waiter ~= '' then call('ZREM', K('waiters'), waiter) end -- on a real store only
  else
    call('ZADD', K('waiters'), F(now + wait), waiter)
  end
  return answer()
end
