-- needs: lane stale_entry close_task
-- What time does to queued tasks: those that are due move on, those of a
-- cancelled tree end.

-- cancel_queued ends a queued task that was cancelled with one above it.
local function cancel_queued(id, t)
  local reason = 'cancelled with ' .. cancelled_ancestor(t)
  dequeue(id, t)
  close_task(id, t, 'cancelled', 'reason', reason, 'closed_by', 'server')
  emit('task.cancelled', { task = id, actor = 'server' }, '{"state":"cancelled","reason":' .. quote(reason) ..
    before_after('state', 'queued', 'cancelled') .. '}')
end

-- promote moves due entries of delayed on: into a lane, or out of a pin. Once nothing is due, nothing becomes due in
-- the same call, since its time stands still.
local none_due
local function look_again() none_due = false end
on_call(look_again)
on_break(look_again)
local function promote(limit)
  if none_due then return 0 end -- on a real store only
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
  none_due = #due < limit
  return #due
end
