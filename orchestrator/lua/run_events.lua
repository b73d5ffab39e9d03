-- needs: evidence
-- run_events writes what an adapter observed into the log: its process was
-- launched, or one of the launcher's timed events.
-- ARGV: task, run, secret, presented token, then per event: type, data JSON, top-level fields
--   JSON or '', containment, workspace path or ''
-- Reply: OK
-- Errors: lease_expired, task_mismatch, stale_fence, unknown_fence
local tid, rid = ARGV[1], ARGV[2]
local r, err = witness(tid, rid, ARGV[3], ARGV[4])
if err then return err end
for i = 5, #ARGV, 5 do
  local kind, again = ARGV[i], false
  if kind == 'run.launched' then
    again = r.launched == '1'
    put(r, 'launched', '1', 'containment', ARGV[i + 3])
    r.launched = '1'
    if ARGV[i + 4] ~= '' then put(r, 'workspace', ARGV[i + 4]) end
  end
  if not again then
    emit(kind, { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid }, ARGV[i + 1],
      ARGV[i + 2] ~= '' and ARGV[i + 2] or nil)
  end
end
return 'OK'
