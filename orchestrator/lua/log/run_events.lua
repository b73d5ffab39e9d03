-- needs: eventbudget evidence facts nudge refused
-- run_events writes what an adapter observed into the log: its process was
-- launched, it shows no sign of life, or one of the launcher's timed events. An
-- event whose id is among the last 128 of the run was written before. What goes
-- beyond the run's budget, or comes after its last event, is counted, not written.
-- alone
-- ARGV: task, run, secret, presented token, then per event: type, id or '', data JSON,
--   top-level fields JSON or '', containment or the reason of a nudge, workspace path or '',
--   1 when it starts processes for the run, else ''
-- Reply: refused (number of events that were counted only), code (of the last of them)
-- Errors: lease_expired, task_mismatch, stale_fence, unknown_fence
local tid, rid = ARGV[1], ARGV[2]
local r, err = authenticate_run(tid, rid, ARGV[3], ARGV[4])
if err then return err end
local newest = r.state == 'running' and r.token or call('HGET', K('task:', tid), 'token') or r.token
local had = {}
for _, id in ipairs(call('LRANGE', K('told:', rid), 0, 127)) do had[id] = true end

-- repeated tells whether an event was written before. Those with a place of
-- their own are known by it, however many events came since.
local function repeated(kind, id)
  local place = RESERVED_EVENTS[kind]
  return kind == 'run.launched' and r.launched == '1' or id ~= '' and (had[id] or place and r[place] == '=' .. id)
end

-- launches returns whether run.launched changes the run's record. The first one does. While the run
-- has its lease, so does one that corrects it.
local function launches()
  return (r.launched ~= '1' or r.state == 'running') and not events_over(r) -- @launch-once
end

local function write(i)
  local kind = ARGV[i]
  if kind == 'run.stalled' then return nudge_run(tid, rid, r, 'silent', ARGV[i + 4]) end
  local data = RESERVED_EVENTS[kind] and with_facts(ARGV[i + 2], tid) or ARGV[i + 2] -- @facts-of-timeouts
  emit(kind, { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid }, data,
    ARGV[i + 3] ~= '' and ARGV[i + 3] or nil)
end

-- note_timeout keeps the timeout of a run whose task has none. Its adapter sets it, and tells it in
-- the launcher's events.
local function note_timeout(i)
  local seconds = string.match(ARGV[i + 3], '"timeoutSeconds":(%d+)')
  if not seconds or num(seconds) == 0 or pick(r[1], 'timeout').timeout == seconds then return end -- @notes-timeout
  put(r, 'timeout', seconds)
end

local counted, why = 0, ''
for i = 5, #ARGV, 7 do
  local kind, id = ARGV[i], ARGV[i + 1]
  local again = repeated(kind, id) -- @event-again
  local code = not again and event_refusal_code(r, newest, kind, id)
  if code then
    counted, why = counted + 1, code
  else
    if kind == 'run.launched' and launches() then
      put(r, 'launched', '1', 'containment', ARGV[i + 4], 'exec', ARGV[i + 6])
      if ARGV[i + 5] ~= '' then put(r, 'workspace', ARGV[i + 5]) end
    end
    note_timeout(i)
    if not again then write(i) end -- @writes-event-once
    if id ~= '' and not had[id] then
      had[id] = true
      call('LPUSH', K('told:', rid), id)
    end
  end
  if id ~= '' and r.last_event == '=' .. id then
    put(r, 'last_event', 'none')
  end
end
call('LTRIM', K('told:', rid), 0, 127)
if counted > 0 then count_refused(rid, { 'events', why, r.token, newest }, counted, 1) end
return named{ refused = counted, code = why }
