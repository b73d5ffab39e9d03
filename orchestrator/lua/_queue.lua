-- Lanes: where queued tasks wait. lane:<lane> holds task ids by score; lanes
-- holds every lane that is not empty by the score of its head, so a grant
-- looks at the best lanes first and reads no list.
local MAX_LANES = 1024
local PIN = 60000 -- an answer keeps the task for the same agent this long

local function score(t) return F((9 - num(t.pri)) * 17592186044416 + num(t.order)) end

-- late counts the delayed tasks of each lane: they will need it later. A lane
-- that has both kinds counts twice, which errs on the safe side.
local function lane_free(lane)
  return call('ZSCORE', K('lanes'), lane) or call('HEXISTS', K('late'), lane) == 1 or
      call('ZCARD', K('lanes')) + call('HLEN', K('late')) < MAX_LANES
end

-- undelay takes a task out of delayed, where it waited for its turn or, in a
-- lane, for the end of its pin.
local function undelay(id, t)
  if call('ZREM', K('delayed'), id) == 1 and t.at == '' and call('HINCRBY', K('late'), t.lane, -1) <= 0 then
    call('HDEL', K('late'), t.lane)
  end
end

local function push(id, t, lane)
  local s = score(t)
  call('ZADD', K('lane:', lane), s, id)
  local head = call('ZSCORE', K('lanes'), lane)
  if not head or num(s) < num(head) then call('ZADD', K('lanes'), s, lane) end
  call('HSET', K('task:', id), 'at', lane)
  t.at = lane
  wake('lane ' .. lane)
end

local function pull(id, t)
  local lane = t.at
  if not lane or lane == '' then return end
  call('ZREM', K('lane:', lane), id)
  local head = call('ZRANGE', K('lane:', lane), 0, 0, 'WITHSCORES')
  if #head == 0 then
    call('ZREM', K('lanes'), lane)
  else
    call('ZADD', K('lanes'), head[2], lane)
  end
  call('HSET', K('task:', id), 'at', '')
  t.at = ''
end

-- still_open tells until when a run's process may still act outside: the old
-- deadline when its adapter announced a process and has not reported its exit.
local function still_open(run)
  if not run or run == '' then return 0 end
  local r = call('HMGET', K('run:', run), 'launched', 'exited', 'deadline')
  if r[1] == '1' and r[2] ~= '1' then return num(r[3]) end
  return 0
end

-- last_open names the run whose process a repair or a repeat of a task has to
-- wait for: the task's own last run, or what it was waiting for itself.
local function last_open(t)
  if t.gate and t.gate ~= '' then return t.gate end
  return t.run
end

-- place puts a queued task into the lane it belongs to now: its pinned agent's
-- while the pin lasts, else its own. It stands in delayed no more, except for
-- the end of a pin.
local function place(id, t)
  if t.gate and t.gate ~= '' then call('HSET', K('task:', id), 'gate', '') end
  if t.pin and t.pin ~= '' and now < num(t.pin_until) then
    push(id, t, 'agent:' .. t.pin)
    call('ZADD', K('delayed'), t.pin_until, id)
  else
    push(id, t, t.lane)
  end
end

-- enqueue is the only way back to a lane. The task waits in delayed until
-- ready (notBefore, backoff) and until the process of gate, the run that held
-- it or its source last, is known to be gone.
local function enqueue(id, t, ready, gate)
  local barrier = still_open(gate)
  local at = math.max(ready, barrier)
  if t.pin and t.pin ~= '' then
    t.pin_until = F(math.max(at, now) + PIN)
    call('HSET', K('task:', id), 'pin_until', t.pin_until)
  end
  if at <= now then return place(id, t) end
  local waits_for = ''
  if barrier > now then
    waits_for = gate
    call('SADD', K('gated:', gate), id)
  end
  call('HSET', K('task:', id), 'ready', F(ready), 'gate', waits_for, 'at', '')
  t.at = ''
  call('ZADD', K('delayed'), F(at), id)
  call('HINCRBY', K('late'), t.lane, 1)
end

-- open_gate lets go on what waits for the process of a run: its own task, or
-- the one that repairs or repeats it.
local function open_gate(run)
  for _, id in ipairs(call('SMEMBERS', K('gated:', run))) do
    local t = load(K('task:', id))
    if t and t.state == 'queued' and t.gate == run then
      undelay(id, t)
      enqueue(id, t, t.not_before and num(t.not_before) <= raw and 0 or num(t.ready), nil)
    end
  end
  call('DEL', K('gated:', run))
end

-- promote moves due entries of delayed on: into a lane, or out of a pin.
local function promote(limit)
  local due = call('ZRANGEBYSCORE', K('delayed'), '-inf', F(now), 'LIMIT', 0, limit)
  for _, id in ipairs(due) do
    local t = load(K('task:', id))
    if not t or t.state ~= 'queued' then -- only a damaged store has one
      call('ZREM', K('delayed'), id)
    else
      undelay(id, t)
      if t.at ~= '' then pull(id, t) end
      place(id, t)
    end
  end
  return #due
end

-- start lets tasks go whose notBefore has come by the clock on the wall, which
-- goes on while store time stands still.
local function start(limit)
  for _, id in ipairs(call('ZRANGEBYSCORE', K('starts'), '-inf', F(raw), 'LIMIT', 0, limit)) do
    call('ZREM', K('starts'), id)
    local t = load(K('task:', id))
    if t and t.state == 'queued' and t.at == '' then
      undelay(id, t)
      enqueue(id, t, 0, t.gate)
    end
  end
end

-- dequeue takes a queued task out of everything it waits in.
local function dequeue(id, t)
  undelay(id, t)
  pull(id, t)
  if t.not_before then call('ZREM', K('starts'), id) end
end
