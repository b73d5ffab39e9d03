-- needs: lane end_lease facts handoff close_task
-- What happens to the tasks below one that ends. Each subtree that is cancelled is marked in the
-- hash of its tree, which every lease of a subtask is held
-- against: it counts from this step on, whatever is left to write down.
local STEP = 100 -- tasks that one step cancels

local function children(id) return call('ZRANGE', K('children:', id), 0, -1) end

-- open_children lists those subtasks of a task that have not ended.
local function open_children(id, t)
  local open = {}
  if not pick(t[1], 'delegated').delegated then return open end
  for _, child in ipairs(children(id)) do
    local c = pick(K('task:', child), 'state')
    if c.state and not TERMINAL[c.state] then open[#open + 1] = child end
  end
  return open
end

-- cancel_task ends a task permanently, in any open state.
local function cancel_task(id, t, by, reason)
  local before = t.state
  if before ~= 'leased' then wake('task ' .. id) end
  if before == 'queued' then
    dequeue(id, t) -- @cancels-queued
  elseif before == 'leased' then
    end_lease(id, t.run, 'cancelled', 'cancelled') -- @cancels-lease
  elseif before == 'handoff' then
    close_handoff(t.handoff, 'cancelled', by, reason)
  end
  close_task(id, t, 'cancelled', 'reason', reason, 'closed_by', by)
  emit('task.cancelled', { task = id, run = before == 'leased' and t.run or '', actor = by },
    '{"state":"cancelled","reason":' .. quote(reason) .. before_after('state', before, 'cancelled') ..
    task_facts(id) .. '}')
end

-- cancel_below cancels what is below the tasks of a list, until it has looked at limit tasks. The
-- rest is left as a chore for each task whose children are not all cancelled. It returns how many
-- it looked at.
local function cancel_below(list, top, by, limit)
  local i, n, through = 1, 0, true
  while list[i] and n < limit do
    n = n + 1
    through = true
    for _, id in ipairs(children(list[i])) do
      if n >= limit then
        through = false
        break
      end
      local t = load(K('task:', id))
      if t and not TERMINAL[t.state] then
        cancel_task(id, t, by, 'cancelled with ' .. top)
        n = n + 1
      end
      if t and t.delegated then list[#list + 1] = id end -- @cancels-deeper
    end
    if through then i = i + 1 end
  end
  for j = i, #list do call('ZADD', K('chores'), '0', 'cancel:' .. list[j] .. ':' .. top) end -- @cancels-rest
  return n
end

-- mark_cancelled notes that a task and all that is below it are cancelled, when, and by
-- whom; root is that of their tree.
local function mark_cancelled(root, id, by) call('HSET', K('tree:', root), id, RAW .. ' ' .. by) end

-- cancel_tree cancels a task and what is below it.
local function cancel_tree(id, t, by, reason)
  cancel_task(id, t, by, reason)
  if not t.delegated then return end
  mark_cancelled(t.root or id, id, by)
  cancel_below({ id }, id, by, STEP)
end

-- cancel_children cancels what is below a task that itself has ended, or may
-- run again. A subtask that has ended may have left open ones of its own.
local function cancel_children(id, t, by)
  if not pick(t[1], 'delegated').delegated then return end
  pick(t[1], 'root')
  for _, child in ipairs(children(id)) do
    local c = pick(K('task:', child), 'state', 'delegated')
    if c.delegated or not TERMINAL[c.state] then mark_cancelled(t.root or id, child, by) end
  end
  cancel_below({ id }, id, by, STEP)
end

-- detach_children has people review the open subtasks of a task in its place.
local function detach_children(open)
  for _, id in ipairs(open) do
    local c = pick(K('task:', id), 'review')
    if c.review == 'parent' then
      put(c, 'review', 'human')
    end
  end
end
