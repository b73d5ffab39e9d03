-- needs: bundle findings lane queue index_keys check_money check_agent push runs
-- What has to be true of one task, whatever happened to it.
local STATES = { 'queued', 'leased', 'review', 'handoff', 'completed', 'rejected', 'failed', 'cancelled' }
local RECORD = { 'state', 'token', 'attempt', 'failures', 'run', 'handoff', 'order', 'lane', 'at', 'pri', 'window',
  'role' }
local RUNS = 32 -- runs of a task that are looked at, the latest

-- check_lane_head checks that lanes holds a lane by the score of its head, and holds no
-- empty one. A lane is looked at once a call, and again when it was repaired.
local checked_lanes = {}
on_call(function() forget(checked_lanes) end)
local function check_lane_head(lane, again)
  if checked_lanes[lane] and not again then return end
  checked_lanes[lane] = true
  local first = call('ZRANGE', K('lane:', lane), 0, 0, 'WITHSCORES')
  if check_member('head', K('lanes'), lane, first[2] or false) then wake('lane ' .. lane) end
end

local function check_in_lane(lane, id, want) check_lane_head(lane, check_member('lane', K('lane:', lane), id, want)) end

-- task_checks has the checks of a task. Each is called with its id and its record.
local task_checks = {}

-- Tokens rise over the runs of a task, the task has the token of its last run,
-- and only a leased task has a running run, that one.
function task_checks.runs(id, t)
  local last, latest = 0, ''
  for _, rid in ipairs(runs_of(id, t, RUNS)) do
    local r = call('HMGET', K('run:', rid), 'task', 'state', 'token')
    local token = num(r[3])
    if r[1] ~= id then
      report_violation('run_lost', id, 'its run ' .. rid .. ' has no record')
    elseif token <= last then
      report_violation('token_fell', id, 'run ' .. rid .. ' has token ' .. F(token) .. ', one before it ' .. F(last))
    end
    local holds = t.state == 'leased' and rid == t.run
    if holds ~= (r[2] == 'running') then
      report_violation('lease_wrong', id, 'it is ' .. t.state .. ', its run ' .. rid .. ' is ' .. (r[2] or 'gone'))
    end
    last, latest = math.max(last, token), rid
  end
  if last ~= num(t.token) then
    report_violation('token_differs', id, 'its token is ' .. t.token .. ', the highest of its runs ' .. F(last))
  end
  local runs = call('LLEN', K('runs:', id))
  if t.run ~= '' and call('LINDEX', K('runs:', id), -1) ~= t.run then runs = runs + 1 end
  if latest ~= t.run or runs ~= num(t.attempt) then
    report_violation('attempt_differs', id, 'attempt ' .. t.attempt .. ' is run ' .. t.run .. ', run ' .. F(runs) ..
      ' is ' .. latest)
  end
end

-- A leased task has a deadline, no further away than its window or the grace
-- of an adoption. A lost one comes back short: a holder who lives renews it.
function task_checks.deadline(id, t)
  local leased, window = t.state == 'leased', num(t.window)
  check_member('deadline', K('deadlines'), id, leased, F(now + math.min(window, GRACE)))
  local far = num(call('ZSCORE', K('deadlines'), id)) - now - math.max(window, GRACE)
  if leased and far > 1000 then
    report_violation('deadline_far', id, 'its deadline is ' .. F(far) .. ' ms later than its window allows')
  end
end

-- A queued task stands in its lane, or in that of the agent it is pinned to, or
-- waits in delayed; any other stands in none of them.
local function check_queue_entries(id, t)
  local queued = t.state == 'queued'
  local at = t.at
  local pinned = at ~= '' and at == 'agent:' .. (t.pin or '')
  if at ~= '' and not (queued and (pinned or at == t.lane)) then
    report_violation('place_wrong', id, 'it is ' .. t.state .. ', but was put into lane ' .. at, function()
      undelay(id, t)
      pull(id, t)
      if queued then enqueue(id, t, num(t.ready), t.gate) end
    end)
    return
  end
  if at ~= '' then check_in_lane(at, id, score(t)) end
  if at ~= t.lane then check_in_lane(t.lane, id, false) end

  local delayed = K('delayed')
  local open = queued and at == '' and process_open_until(t.gate) or 0
  local calls, caller = awaited_calls_until(id, t)
  if queued and at == '' then
    check_member('delayed', delayed, id, true, F(math.max(now, num(t.ready), open, calls)))
  elseif not pinned then
    check_member('delayed', delayed, id, false)
  elseif at ~= t.lane or num(t.pin_until) > now + 1000 then -- else it may have been promoted to where it stands
    check_member('delayed', delayed, id, t.pin_until)
  end
  if open > now and call('SISMEMBER', K('gated:', t.gate), id) == 0 then
    report_violation('gate_missing', id, 'nothing tells it that run ' .. t.gate .. ' has exited', function()
      call('SADD', K('gated:', t.gate), id)
    end)
  end
  if queued and at == '' and calls > now and call('SISMEMBER', K('gated:', caller), id) == 0 then
    report_violation('gate_missing', id, 'nothing tells it that a call of ' .. caller .. ' has ended', function()
      call('SADD', K('gated:', caller), id)
    end)
  end
  if not (queued and t.not_before) then check_member('start', K('starts'), id, false) end
end

function task_checks.handoff(id, t)
  local h = call('HMGET', K('handoff:', t.handoff), 'task', 'state', 'kind', 'created')
  if h[1] == id and h[2] == 'open' then
    repair_index(K('open-by-kind:', h[3]), t.handoff, h[4])
    check_member('handoff', K('handoffs:', 'open'), t.handoff, true, F(raw))
  else
    report_violation('handoff_closed', id, 'it waits for hand-off ' .. t.handoff .. ', which is ' .. (h[2] or 'gone'))
  end
end

-- The pieces of the bundle of a task are all there, and an upload that was begun is
-- given up one day.
function task_checks.bundle(id, t)
  local b = call('HMGET', K('bundle:', id), 'sha', 'count', 'up_sha')
  if b[1] and call('HLEN', bundle_pieces(id, b[1])) ~= num(b[2]) then
    report_violation('bundle_torn', id, 'pieces of its bundle are missing', function()
      delete_bundle(id, t.root or id)
    end)
    return
  end
  check_member('upload', K('uploads'), id, b[3] and true or false, NOW)
end

-- What a task has emitted is all there.
function task_checks.emissions(id, t)
  local n = call('LLEN', K('emitted:', id))
  if n == num(t.emitted) then return end
  report_violation('emissions_differ', id, 'it counts ' .. (t.emitted or '0') .. ' emissions of ' .. F(n), function()
    local bytes = 0
    for _, entry in ipairs(call('LRANGE', K('emitted:', id), 0, -1)) do bytes = bytes + #entry end
    put(t, 'emitted', F(n), 'emitted_bytes', F(bytes))
  end)
end

-- Each push configuration of a task has a record, stands among those of the client, and is due while it has something
-- to send. A task with one keeps its updates.
function task_checks.pushes(id, t)
  local list, last = call('ZRANGE', K('pushes:', id), 0, -1), call('LLEN', K('updates:', id))
  if #list > 0 and t.push ~= '1' then
    report_violation('push_damaged', id, 'it has push configurations and keeps no updates for them', function()
      put(t, 'push', '1')
    end)
  end
  for _, cid in ipairs(list) do
    local cursor = call('HGET', pushes.key(id, cid), 'cursor')
    if not cursor then
      report_violation('push_damaged', id .. ':' .. cid, 'the push configuration has no record', function()
        pushes.drop(id, t, cid)
      end)
    else
      check_member('push', K('push-due'), id .. ':' .. cid, num(cursor) < last, NOW)
      check_member('push', K('client-pushes:', t.client), id .. ':' .. cid, true, NOW)
    end
  end
end

local function check_task(id, t)
  local known = false
  for _, s in ipairs(STATES) do known = known or s == t.state end
  for _, field in ipairs(RECORD) do known = known and t[field] end
  if not known then
    report_violation('record_damaged', id, 'its state is ' .. (t.state or 'gone') .. ', or a field is gone')
    return
  end
  for _, s in ipairs(STATES) do check_member('state', K('by-state:', s), id, s == t.state and t.order) end
  for _, key in ipairs(index_keys(t)) do
    check_member('list', key, id, t.order)
  end
  if t.client then
    for _, key in ipairs(client_lists(t)) do check_member('client', key, id, '-' .. t.updated) end
    check_member('client', K('client-open:', t.client), id, not TERMINAL[t.state] and t.order)
    task_checks.pushes(id, t)
  end
  check_member('terminal', K('terminal'), id, TERMINAL[t.state] or false, F(now))
  task_checks.runs(id, t)
  task_checks.deadline(id, t)
  check_queue_entries(id, t)
  check_money(id, t)
  task_checks.bundle(id, t)
  task_checks.emissions(id, t)
  if t.state == 'handoff' then task_checks.handoff(id, t) end
  repair_index(K('in-review'), id, t.state == 'review' and t.updated)
  if t.state == 'leased' then check_lease_owner(id, t) end
end
