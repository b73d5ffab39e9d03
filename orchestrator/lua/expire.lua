-- flags: allow-oom
-- needs: queue end view
-- expire ends leases that nobody renewed, or one that an operator or an
-- undelivered answer takes away.
-- ARGV: mode (due | task | undelivered), actor, limit; task mode: task, reason,
--   request key, body hash; undelivered mode: run ids
-- Reply: due and undelivered: number ended; task: view of the task
-- Errors: task mode: not_found, task_closed, state_conflict, idempotency_conflict
local mode, actor = ARGV[1], ARGV[2]

local function expire(tid, t, class, reason)
  local rid = t.run
  local r = call('HMGET', K('run:', rid), 'agent', 'token')
  end_lease(tid, rid, 'expired', class)
  local state, failures = after(tid, t, rid, class, true)
  emit('lease.expired', { task = tid, run = rid, agent = r[1], token = r[2], actor = actor, reason = class },
    '{"state":' .. quote(state) .. ',"failures":' .. F(failures) .. ',"class":' .. quote(class) ..
    ',"reason":' .. quote(reason) .. '}')
end

if mode == 'due' then
  local due = call('ZRANGEBYSCORE', K('deadlines'), '-inf', F(now), 'LIMIT', 0, ARGV[3])
  for _, tid in ipairs(due) do
    local t = load(K('task:', tid))
    local confirmed = call('HGET', K('run:', t.run), 'confirmed')
    local class = confirmed == '1' and 'lease_expired' or 'undelivered'
    expire(tid, t, class, class)
  end
  return #due
end

if mode == 'undelivered' then
  local n = 0
  for i = 4, #ARGV do
    local r = call('HMGET', K('run:', ARGV[i]), 'task', 'state', 'confirmed')
    if r[1] and r[2] == 'running' and r[3] == '0' then
      expire(r[1], load(K('task:', r[1])), 'undelivered', 'undelivered')
      n = n + 1
    end
  end
  return n
end

local tid, key, body = ARGV[4], ARGV[6], ARGV[7]
local was, err = once(key, body)
if err then return err end
if was then return view(tid) end
local t = load(K('task:', tid))
if not t then return refuse('not_found', 'kind', 'task') end
if TERMINAL[t.state] then return refuse('task_closed', 'state', t.state) end
if t.state ~= 'leased' then return refuse('state_conflict', 'state', t.state, 'need', 'leased') end
expire(tid, t, 'expired_by_operator', ARGV[5])
remember(key, body, tid, DAY)
return view(tid)
