-- needs: fence nudge seen toolcalls unread
-- reads: task 1, run 2, deadlines 1
-- emission keeps what an agent tells its client while it works: a piece of an artifact, or a status message. A
-- requestId seen among the run's last 32 gets the answer it got before.
-- ARGV: task, run, secret, presented token, request id or '', content hash, what is emitted (JSON), the call in words,
--   id of the artifact or '' for a status message, append 0|1, last 0|1, what the event says (JSON members),
--   most emissions of a task, most bytes of them
-- Reply: seq, nudge (JSON or ''), unread; or {} when this call ended the run
-- Errors: those of fenced; idempotency_conflict, quota_exceeded, not_found (there is no such artifact),
--   state_conflict (the artifact is closed)
local tid, rid, req, artifact, append = ARGV[1], ARGV[2], ARGV[5], ARGV[9], ARGV[10] == '1'
local tool = artifact ~= '' and 'emit' or 'emit_status'
local t, r, deadline, err = fenced(tid, rid, ARGV[3], ARGV[4])
if err then return err end
local was, changed = seen_before(rid, req, ARGV[6])
if changed then return changed end
if was then return named{ seq = was, nudge = nudge_for_call(r, req), unread = unread_of(tid, r) } end
pick(t[1], 'emitted', 'emitted_bytes', 'push')
local seq = F(num(t.emitted) + 1)
local entry = seq .. ' ' .. RAW .. ' ' .. rid .. ' ' .. r.token .. ' ' .. ARGV[7]
local bytes = num(t.emitted_bytes) + #entry
if num(seq) > num(ARGV[13]) then -- @bounds-emissions
  return refuse('quota_exceeded', 'quota', 'emissions', 'limit', ARGV[13])
end
if bytes > num(ARGV[14]) then -- @bounds-emitted
  return refuse('quota_exceeded', 'quota', 'emitted_bytes', 'limit', ARGV[14])
end
local open = '1'
if append then open = call('HGET', K('artifacts:', tid), artifact) end -- @appends-to-open
if not open then return refuse('not_found', 'kind', 'artifact') end
if open == '0' then return refuse('state_conflict.artifact_closed') end
deadline = confirm_lease(tid, r, deadline)
local nudge = note_tool_call(tid, rid, t, r, deadline, tool .. ' ' .. ARGV[6], ARGV[8], req, req)
if not nudge then return {} end
put(t, 'emitted', seq, 'emitted_bytes', F(bytes)) -- @counts-emissions
if updates.wanted(t) then updates.append(tid, 'emission ' .. seq) end -- @notes-emission
if artifact ~= '' then
  call('HSET', K('artifacts:', tid), artifact, ARGV[11] == '1' and '0' or '1') -- @closes-artifact
end
emit(artifact ~= '' and 'task.artifact' or 'task.status',
  { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid }, '{"seq":' .. seq .. ARGV[12] .. '}')
local unread = unread_of(tid, r)
call_now('RPUSH', K('emitted:', tid), entry) -- at once: if that is refused, the request must not be known
note_seen(rid, req, ARGV[6], seq)
return named{ seq = seq, nudge = nudge, unread = unread }
