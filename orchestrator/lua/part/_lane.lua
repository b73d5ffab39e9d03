-- Lanes: where queued tasks wait. lane:<lane> holds task ids by score; lanes
-- holds every lane that is not empty by the score of its head, so a grant
-- looks at the best lanes first and reads no list.
local function score(t) return F((9 - num(t.pri)) * 17592186044416 + num(t.order)) end -- @priority-first

-- undelay takes a task out of delayed, where it waited for its turn or, in a
-- lane, for the end of its pin.
local function undelay(id, t)
  if call_now('ZREM', K('delayed'), id) == 1 and t.at == '' and call('HINCRBY', K('late'), t.lane, -1) <= 0 then
    call('HDEL', K('late'), t.lane)
  end
end

local function push(id, t, lane)
  local s = score(t)
  call('ZADD', K('lane:', lane), s, id)
  call('ZADD', K('lanes'), 'LT', s, lane)
  put(t, 'at', lane)
  t.at = lane
  wake('lane ' .. lane)
end

-- pull takes a task out of its lane; head is the score of the next one, where
-- it is known.
local function pull(id, t, head)
  local lane = t.at
  if not lane or lane == '' then return end
  call('ZREM', K('lane:', lane), id)
  head = head or call('ZRANGE', K('lane:', lane), 0, 0, 'WITHSCORES')[2]
  if head then
    call('ZADD', K('lanes'), head, lane) -- @moves-lane
  else
    call('ZREM', K('lanes'), lane)
  end
  put(t, 'at', '')
  t.at = ''
end

-- unpin_tasks_of lets anyone take what is kept for an agent: up to a hundred of the tasks in its
-- lane. The pins of the others end with their time.
local function unpin_tasks_of(agent)
  for _, id in ipairs(call('ZRANGE', K('lane:', 'agent:' .. agent), 0, 99)) do
    local t = load(K('task:', id))
    if t and t.state == 'queued' and t.pin == agent and t.at ~= t.lane then -- @unpins-at-once
      undelay(id, t)
      pull(id, t)
      push(id, t, t.lane)
      put(t, 'pin', '')
    end
  end
end

-- instance_lives reports whether the agent for which a client has submitted a task still takes tasks, in the same
-- incarnation.
local function instance_lives(t)
  if t.instance == nil then pick(t[1], 'instance', 'instance_number') end
  if not t.instance then return false end
  local a = pick(K('agent:', t.instance), 'status', 'incarnation') -- as this verb leaves it
  return a.incarnation == t.instance_number and (a.status == 'active' or a.status == 'unhealthy') -- @instance-lives
end

-- place_in_lane puts a queued task into the lane it belongs to now: its pinned agent's
-- while the pin lasts and that agent takes tasks, else its own. A pin keeps it for the agent that
-- asked the question, or for the worker that has the workspace of the run that failed.
-- It stands in delayed no more, except for
-- the end of a pin.
local function place_in_lane(id, t)
  if t.gate and t.gate ~= '' then put(t, 'gate', '') end
  local free = not t.pin or t.pin == '' or now >= num(t.pin_until)
  if free and t.client and instance_lives(t) then -- @keeps-for-instance
    t.pin, t.pin_for, t.pin_until = t.instance, 'instance', F(now + 60000)
    put(t, 'pin', t.pin, 'pin_for', t.pin_for, 'pin_until', t.pin_until)
  end
  local kept = t.pin and t.pin ~= '' and now < num(t.pin_until)
  local status = kept and call('HGET', K('agent:', t.pin), 'status')
  if kept and (not status or status == 'active' or status == 'unhealthy') then -- @pin-of-the-living
    push(id, t, 'agent:' .. t.pin)
    call('ZADD', K('delayed'), t.pin_until, id)
  else
    push(id, t, t.lane)
  end
end

-- dequeue takes a queued task out of everything it waits in.
local function dequeue(id, t, head)
  if t.at == '' or t.pin and t.pin ~= '' then undelay(id, t) end
  pull(id, t, head)
  if t.not_before then call('ZREM', K('starts'), id) end
end
