-- The event budget of a run: how many events its credential may append to the
-- log.

-- Two events of a run have a place of their own beside the budget, once each, so
-- that a flood of others never displaces them. The field holds the event's id.
local RESERVED_EVENTS = { ['agent-timeout-warning'] = 'warned', ['agent-timed-out'] = 'timed_out' }

-- take_event takes one event from the budget, if one is left. The budget holds BURST events and gains one every
-- EVERY ms of store time. The record holds the instant at which it is full again.
local function take_event(r)
  local BURST, EVERY = 240, 5000
  local full = math.max(num(r.events_full), now) + EVERY
  if full > now + BURST * EVERY then return false end
  put(r, 'events_full', F(full))
  return true
end

-- record_exit records the exit of a run and its last event: '' if the adapter
-- does not name it, 'none', or '=' and an id. Only the first exit counts. The
-- run's events are over when its last event has been written.
local function record_exit(rid, r, last)
  if pick(r[1], 'exited').exited == '1' then return end -- @exit-once
  if last ~= 'none' and last ~= '' then
    for _, id in ipairs(call('LRANGE', K('told:', rid), 0, 127)) do
      if last == '=' .. id then last = 'none' end
    end
  end
  put(r, 'exited', '1', 'exited_at', NOW, 'last_event', last)
end

-- events_over reports whether the exit of a run has ended its events. Its last events are taken for WINDOW ms of
-- store time after that.
local function events_over(r)
  local WINDOW = 30000
  return r.exited == '1' and (r.last_event == 'none' or now - num(r.exited_at) >= WINDOW)
end

-- event_refusal_code is the code with which an event of a run is counted instead of
-- written, or nil. newest is the task's token.
local function event_refusal_code(r, newest, kind, id)
  if events_over(r) then return 'lease_released' end -- @events-are-over
  if kind == 'run.launched' then return nil end -- the log has its first one only
  local place = RESERVED_EVENTS[kind]
  if place and not r[place] then
    put(r, place, '=' .. id)
    return nil
  end
  if num(r.token) < num(newest) then return 'stale_fence' end -- @newest-run-writes
  if r.exited == '1' and not string.find(r.last_event or '', '^=') then return 'lease_released' end -- @exited
  if not take_event(r) then return 'quota_exceeded' end
end
