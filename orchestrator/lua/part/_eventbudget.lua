-- The event budget of a run: how many events its credential may append to the
-- log. It holds BURST events and gains one every EVENT_EVERY ms of store time.
local EVENT_BURST, EVENT_EVERY = 240, 5000
-- Two events of a run have a place of their own beside the budget, once each, so
-- that a flood of others never displaces them. The field holds the event's id.
local RESERVED_EVENTS = { ['agent-timeout-warning'] = 'warned', ['agent-timed-out'] = 'timed_out' }
-- EXIT_WINDOW is how long after a run's exit its last events are taken, in ms of
-- store time.
local EXIT_WINDOW = 30000

-- take_event takes one event from the budget, if one is left. The record
-- holds the instant at which the budget is full again.
local function take_event(r)
  local full = math.max(num(r.events_full), now) + EVENT_EVERY
  if full > now + EVENT_BURST * EVENT_EVERY then return false end
  r.events_full = F(full)
  put(r, 'events_full', r.events_full)
  return true
end

-- record_exit records the exit of a run and its last event: '' if the adapter
-- does not name it, 'none', or '=' and an id. Only the first exit counts. The
-- run's events are over when its last event has been written.
local function record_exit(rid, r, last)
  if pick(r[1], 'exited').exited == '1' then return end -- @exit-once
  r.exited = '1'
  if last ~= 'none' and last ~= '' then
    for _, id in ipairs(call('LRANGE', K('told:', rid), 0, 127)) do
      if last == '=' .. id then last = 'none' end
    end
  end
  put(r, 'exited', '1', 'exited_at', NOW, 'last_event', last)
end

-- events_over reports whether the exit of a run has ended its events.
local function events_over(r)
  return r.exited == '1' and (r.last_event == 'none' or now - num(r.exited_at) >= EXIT_WINDOW)
end

-- event_refusal_code is the code with which an event of a run is counted instead of
-- written, or nil. newest is the task's token.
local function event_refusal_code(r, newest, kind, id)
  if events_over(r) then return 'lease_released' end -- @events-are-over
  if kind == 'run.launched' then return nil end -- the log has its first one only
  local place = RESERVED_EVENTS[kind]
  if place and not r[place] then
    r[place] = '=' .. id
    put(r, place, r[place])
    return nil
  end
  if num(r.token) < num(newest) then return 'stale_fence' end -- @newest-run-writes
  if r.exited == '1' and not string.find(r.last_event or '', '^=') then return 'lease_released' end -- @exited
  if not take_event(r) then return 'quota_exceeded' end
end
