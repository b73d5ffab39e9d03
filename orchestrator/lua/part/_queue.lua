-- needs: lane
-- The ways into a queue.
local MAX_LANES = 1024

-- late counts the delayed tasks of each lane: they will need it later. A lane
-- that has both kinds counts twice, which errs on the safe side.
local function lane_available(lane)
  return head_of(lane) or call('ZSCORE', K('lanes'), lane) or call('HEXISTS', K('late'), lane) == 1 or
      call('ZCARD', K('lanes')) + call('HLEN', K('late')) < MAX_LANES
end

-- process_open_until tells until when a run's process may still act outside: the old
-- deadline when its adapter announced a process and has not reported its exit.
local function process_open_until(run)
  if not run or run == '' then return 0 end
  local r = pick(K('run:', run), 'launched', 'exited', 'deadline')
  if r.launched == '1' and r.exited ~= '1' then return num(r.deadline) end -- @waits-for-process
  return 0
end

-- last_open_run names the run whose process a repair or a repeat of a task has to
-- wait for: the task's own last run, or what it was waiting for itself.
local function last_open_run(t)
  if t.gate and t.gate ~= '' then return t.gate end
  return t.run
end

-- awaited_tasks are the tasks whose calls a task waits for. These are the task itself if it has had a run, and the
-- tasks that it fixes or repeats, if they had calls under way when it was made.
local function awaited_tasks(id, t)
  local all = num(t.attempt) > 0 and { id } or {}
  for of in string.gmatch(t.calls or '', '%S+') do all[#all + 1] = of end
  return all
end

local function calls_open_until(id) return num(call('ZRANGE', K('inflight:', id), -1, -1, 'WITHSCORES')[2]) end

-- awaited_calls_until tells until when calls may act outside that a task waits for, and
-- names the task of the last one. Once that has ended the task looks for others.
local function awaited_calls_until(id, t)
  local latest, owner = 0, ''
  for _, of in ipairs(awaited_tasks(id, t)) do
    local ends = calls_open_until(of)
    if ends > latest then latest, owner = ends, of end
  end
  return latest, owner
end

-- inherit_calls makes a new task wait for what is under way for its source as well, and
-- for what the source itself waits for.
local function inherit_calls(t, source)
  if source == '' then return end
  local open = {}
  for _, of in ipairs(awaited_tasks(source, pick(K('task:', source), 'calls'))) do
    if calls_open_until(of) > now then open[#open + 1] = of end
  end
  if #open == 0 then return end -- @waits-for-source
  put(t, 'calls', table.concat(open, ' '))
end

-- enqueue is the only way back to a lane. The task waits in delayed until
-- ready (notBefore, backoff), until the process of awaited, the run that held it
-- or its source last, is known to be gone, and until no call of theirs that acts
-- outside is under way.
local function enqueue(id, t, ready, awaited)
  local barrier = process_open_until(awaited)
  local calls, caller = awaited_calls_until(id, t)
  local at = math.max(ready, barrier, calls) -- @waits-for-calls
  if t.pin and t.pin ~= '' then
    -- A retry is kept for ten seconds, and a task whose question was answered for a minute.
    put(t, 'pin_until', F(math.max(at, now) + (t.pin_for == 'retry' and 10000 or 60000))) -- @pin-lasts
  end
  if at <= now then return place_in_lane(id, t) end
  local waits_for = ''
  if barrier > now then
    waits_for = awaited
    call('SADD', K('gated:', awaited), id)
  end
  if calls > now then call('SADD', K('gated:', caller), id) end
  put(t, 'ready', F(ready), 'gate', waits_for, 'at', '')
  call('ZADD', K('delayed'), F(at), id)
  call('HINCRBY', K('late'), t.lane, 1)
end

-- requeue lets a waiting task look at what is left of what it waits for.
local function requeue(id, t, awaited)
  undelay(id, t)
  -- Its start may have come by the wall; once it has run, ready is a backoff.
  local come = t.not_before and num(t.attempt) == 0 and num(t.not_before) <= raw
  enqueue(id, t, come and 0 or num(t.ready), awaited)
end

-- requeue_after_process lets go on what waits for the process of a run: its own task, or
-- the one that repairs or repeats it.
local function requeue_after_process(run)
  for _, id in ipairs(call('SMEMBERS', K('gated:', run))) do
    local t = load(K('task:', id))
    if t and t.state == 'queued' and t.gate == run then requeue(id, t, nil) end
  end
  call('DEL', K('gated:', run))
end

-- requeue_after_calls is for those who wait for calls of a task, when one has ended.
local function requeue_after_calls(owner)
  local waiting = call('SMEMBERS', K('gated:', owner))
  if #waiting == 0 then return end
  call('DEL', K('gated:', owner))
  for _, id in ipairs(waiting) do
    local t = load(K('task:', id))
    if t and t.state == 'queued' and t.at == '' then requeue(id, t, t.gate) end
  end
end
