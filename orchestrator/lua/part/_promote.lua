-- needs: lane stale_entry close_task
-- What time does to queued tasks: those that are due move on, those of a
-- cancelled tree end.

-- cancel_queued ends a queued task that was cancelled with one above it.
local function cancel_queued(id, t, head)
  local reason = 'cancelled with ' .. cancelled_ancestor(t)
  dequeue(id, t, head)
  close_task(id, t, 'cancelled', 'reason', reason, 'closed_by', 'server')
  emit('task.cancelled', { task = id, actor = 'server' }, '{"state":"cancelled","reason":' .. quote(reason) ..
    before_after('state', 'queued', 'cancelled') .. '}')
end

-- promote moves due entries of delayed on: into a lane, or out of a pin.
local function promote(limit)
  local due = call('ZRANGEBYSCORE', K('delayed'), '-inf', NOW, 'LIMIT', 0, limit)
  for _, id in ipairs(due) do
    local t = load(K('task:', id))
    if not t or t.state ~= 'queued' then
      remove_stale_entry('delayed_extra', K('delayed'), id)
    elseif cancelled_ancestor(t) then
      cancel_queued(id, t)
    else
      undelay(id, t)
      if t.at ~= '' then pull(id, t) end
      place_in_lane(id, t)
    end
  end
  return #due
end
