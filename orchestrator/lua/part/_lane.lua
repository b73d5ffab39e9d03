-- Lanes: where queued tasks wait. lane:<lane> holds task ids by score; lanes
-- holds every lane that is not empty by the score of its head, so a grant
-- looks at the best lanes first and reads no list.
local function score(t) return (9 - num(t.pri)) * 17592186044416 + num(t.order) end -- @priority-first

-- undelay takes a task out of delayed, where it waited for its turn or, in a
-- lane, for the end of its pin.
local function undelay(id, t)
  if call_now('ZREM', K('delayed'), id) == 1 and t.at == '' and call('HINCRBY', K('late'), t.lane, -1) <= 0 then
    call('HDEL', K('late'), t.lane)
  end
end

-- A call reads the best lanes once: heads has them by the scores of their first tasks. All other lanes come after the
-- score last_head, and all_heads says that there are no others. queues has the first tasks of the lanes that the call
-- has looked into.
local HEADS, TASKS = 16, 8
local heads, last_head, all_heads
local queues
local function forget_lanes() heads, queues = nil, {} end
on_call(forget_lanes)
on_break(forget_lanes)

local function read_heads(n)
  heads, last_head = {}, -1
  local flat = call('ZRANGE', K('lanes'), 0, n - 1, 'WITHSCORES')
  for i = 1, #flat, 2 do
    last_head = num(flat[i + 1])
    heads[flat[i]] = last_head
  end
  all_heads = #flat < 2 * n
end

-- head_of returns the score of the first task of a lane, false if the lane is empty, or nil if nobody has looked.
local function head_of(lane)
  if not heads then read_heads(HEADS) end
  return heads[lane] or (not all_heads and nil)
end

local function set_head(lane, head)
  if heads then heads[lane] = head and (all_heads or head <= last_head) and head or nil end
  if head then
    call('ZADD', K('lanes'), F(head), lane) -- @moves-lane
  else
    call('ZREM', K('lanes'), lane)
  end
end

-- queue_of has the first tasks of a lane in their order, from its field first on. whole says whether these are all.
local function queue_of(lane)
  local q = queues[lane]
  if q and (q.whole or q[q.first]) then return q end
  local flat = call('ZRANGE', K('lane:', lane), 0, TASKS - 1, 'WITHSCORES')
  q = { first = 1, whole = #flat < 2 * TASKS }
  for i = 1, #flat, 2 do q[#q + 1] = { flat[i], num(flat[i + 1]) } end
  queues[lane] = q
  return q
end

-- insert_task adds a task to what is known of a lane, at its place. What comes after all that are known stays unknown.
local function insert_task(q, id, s)
  local at = #q + 1
  while at > q.first and q[at - 1][2] > s do at = at - 1 end -- on a real store only
  if at <= #q or q.whole then table.insert(q, at, { id, s }) end -- on a real store only
end

local function remove_task(q, id)
  for at = q.first, #q do
    if q[at][1] == id then
      if at == q.first then
        q.first = at + 1
      else
        table.remove(q, at)
      end
      return
    end
  end
end

local function push(id, t, lane)
  local s = score(t)
  call('ZADD', K('lane:', lane), F(s), id)
  if queues[lane] then insert_task(queues[lane], id, s) end
  local head = head_of(lane)
  if head == nil then
    call('ZADD', K('lanes'), 'LT', F(s), lane)
    if s <= last_head then heads[lane] = s end
  elseif not head or s < head then
    set_head(lane, s)
  end
  put(t, 'at', lane)
  wake('lane ' .. lane)
end

-- take_from_lane takes out of a lane what has the id of a task.
local function take_from_lane(id, lane)
  remove_task(queue_of(lane), id) -- the lane is read before it changes: a verb that breaks later leaves it as it was
  call('ZREM', K('lane:', lane), id)
  local q = queue_of(lane)
  local first = q[q.first]
  set_head(lane, first and first[2])
end

-- first_in_lane is the first task of a lane, or '' if the lane is empty, which only a damaged store has.
local function first_in_lane(lane)
  local q = queue_of(lane)
  return q[q.first] and q[q.first][1] or ''
end

-- best_covered_lane finds the lane with the best first task among those for which accepts is true. If none of the lanes
-- that are known is, it looks at four times as many.
local function best_covered_lane(accepts, ...)
  local n = HEADS
  if not heads then read_heads(n) end
  while true do
    local best
    for lane, head in pairs(heads) do
      if (not best or head < heads[best]) and accepts(lane, ...) then best = lane end
    end
    if best or all_heads then return best end
    n = n * 4
    read_heads(n)
  end
end

-- pull takes a task out of its lane.
local function pull(id, t)
  if not t.at or t.at == '' then return end
  take_from_lane(id, t.at)
  put(t, 'at', '')
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
    put(t, 'pin', t.instance, 'pin_for', 'instance', 'pin_until', F(now + 60000))
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
local function dequeue(id, t)
  if t.at == '' or t.pin and t.pin ~= '' then undelay(id, t) end
  pull(id, t)
  if t.not_before then call('ZREM', K('starts'), id) end
end
