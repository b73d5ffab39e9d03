-- needs: findings agent
-- What has to be true of one agent and of the leases it holds.
local STATUSES = { 'active', 'unhealthy', 'draining', 'dead', 'deregistered' }
local AGENT = { 'status', 'role', 'owner', 'version', 'incarnation', 'interval', 'unhealthy', 'dead', 'beat_at',
  'commands' }

-- An agent that takes part is judged when it has been silent for too long, and
-- by when its drain has to be over. One that is judged early loses nothing.
local function check_silence(id, a)
  local live = not GONE[a.status]
  check_member('silence', K('silence'), id, live, NOW)
  local due = live and num(call('ZSCORE', K('silence'), id)) or 0
  if live and due > judge_at(a) then
    report_violation('silence_late', id, 'it is judged ' .. F(due - judge_at(a)) .. ' ms too late', function()
      schedule_judgement(id, a)
    end)
  end
end

-- What an agent is said to hold is leased to it.
local function check_held_leases(id, a)
  local key = K('holder:', id .. ':' .. a.incarnation)
  for _, tid in ipairs(call('ZRANGE', key, 0, 99)) do
    local t = call('HMGET', K('task:', tid), 'state', 'run')
    local r = call('HMGET', K('run:', t[2] or ''), 'agent', 'incarnation')
    if t[1] ~= 'leased' or r[1] ~= id or r[2] ~= a.incarnation then
      report_violation('holder_extra', tid, 'it is ' .. (t[1] or 'gone') .. ', but listed as held by ' .. id, function()
        call('ZREM', key, tid)
      end)
    end
  end
end

-- The key that owns an agent finds it by its role. How many such agents it has
-- is known from all records only, so a number that was lost begins at one.
local function check_role(id, a)
  local key = K('roles-of:', a.owner)
  if num(call('HGET', key, a.role) or '0') < 1 then
    report_violation('role_missing', id, 'its key ' .. a.owner .. ' counts no agent of ' .. a.role, function()
      call('HSET', key, a.role, '1')
    end)
  end
  check_member('role', key .. ':names', a.role, '0')
end

local function check_agent(id, a)
  local known = false
  for _, s in ipairs(STATUSES) do known = known or s == a.status end
  for _, field in ipairs(AGENT) do known = known and a[field] end
  if not known then
    report_violation('agent_damaged', id, 'its status is ' .. (a.status or 'gone') .. ', or a field is gone')
    return
  end
  for _, s in ipairs(STATUSES) do
    check_member('roster', K('roster:', s), id, s == a.status and '0')
    check_member('roster', K('roster:', s .. '|' .. a.role), id, s == a.status and '0')
  end
  check_member('gone', K('gone'), id, GONE[a.status] or false, NOW)
  check_silence(id, a)
  check_held_leases(id, a)
  check_role(id, a)
  local pending = call('HLEN', K('commands:', id))
  if pending ~= num(a.commands) then
    report_violation('commands_differ', id, 'it counts ' .. a.commands .. ' commands, ' .. F(pending) .. ' are pending',
      function()
      put(a, 'commands', F(pending))
    end)
  end
end

-- A lease that was acquired with a key is listed with the key. A revocation that
-- ends leases ends it at the latest when its chore is done.
local function check_key_lease(tid, t, key)
  if not key or key == '' then return end
  check_member('key_lease', K('leases-of:', key), tid, true, t.order)
  local chore = 'key:' .. key
  if key_ended_leases(key) and not call('ZSCORE', K('chores'), chore) then
    report_violation('lease_of_revoked', tid, 'the key ' .. key ..
      ' that acquired it was revoked with its leases, and nothing ends that', function()
      call('ZADD', K('chores'), '0', chore)
    end)
  end
end

-- check_listed_lease looks at a lease that is listed with a key.
local function check_listed_lease(id, tid)
  local t = call('HMGET', K('task:', tid), 'state', 'run')
  if t[1] ~= 'leased' or call('HGET', K('run:', t[2] or ''), 'key') ~= id then
    report_violation('key_lease_extra', tid, 'it is ' .. (t[1] or 'gone') .. ', but listed as acquired with ' .. id,
      function()
      call('ZREM', K('leases-of:', id), tid)
    end)
  end
end

-- A lease of a registered agent is listed as held by it, and ends with it: by
-- then at the latest when the chore of that end is done.
local function check_lease_owner(tid, t)
  local r = call('HMGET', K('run:', t.run), 'agent', 'incarnation', 'key')
  check_key_lease(tid, t, r[3])
  if num(r[2]) == 0 then return end
  local it = r[1] .. ':' .. r[2]
  check_member('holder', K('holder:', it), tid, true, t.order)
  local a = call('HMGET', K('agent:', r[1]), 'status', 'incarnation', 'reason')
  local status = a[2] == r[2] and a[1] or 'gone'
  if status ~= 'gone' and not GONE[status] then return end
  for _, reason in ipairs({ 'agent_dead', 'drain_timeout', 'agent_deregistered' }) do
    if call('ZSCORE', K('chores'), 'dead:' .. it .. ':' .. reason) then return end
  end
  report_violation('lease_of_gone', tid, 'it is leased to ' .. it .. ', which is ' .. status ..
    ', and nothing ends that', function()
    local why = status == 'deregistered' and 'agent_deregistered' or a[3] == 'drain_timeout' and status == 'dead'
      and a[3] or 'agent_dead'
    call('ZADD', K('chores'), '0', 'dead:' .. it .. ':' .. why)
  end)
end

-- A pool counts its records, and is listed while there are any; what stands in its rosters and is not of it is
-- looked for only when the numbers differ.
local function check_pool_count(role, count)
  local listed = 0
  for _, s in ipairs(STATUSES) do listed = listed + call('ZCARD', K('roster:', s .. '|' .. role)) end
  if listed == num(count) then return listed end
  for _, s in ipairs(STATUSES) do
    local key = K('roster:', s .. '|' .. role)
    for _, id in ipairs(call('ZRANGE', key, 0, 999)) do
      local a = call('HMGET', K('agent:', id), 'status', 'role')
      if a[1] ~= s or a[2] ~= role then
        listed = report_violation('roster_extra', id, 'it stands in roster:' .. s .. '|' .. role, function()
          call('ZREM', key, id)
        end) and listed - 1 or listed
      end
    end
  end
  if listed ~= num(count) then
    report_violation('pool_count', role, 'it counts ' .. count .. ' agents, its rosters hold ' .. F(listed), function()
      call('HSET', K('pools'), role, F(listed))
    end)
  end
  return listed
end

local function check_pool(role, count)
  check_member('pool', K('pools') .. ':names', role, check_pool_count(role, count) > 0 and '0')
end
