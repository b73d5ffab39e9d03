-- needs: evidence nudge
-- run_events writes what an adapter observed into the log: its process was
-- launched, it shows no sign of life, or one of the launcher's timed events. An
-- event whose id is among the last 128 of the run was written before.
-- ARGV: task, run, secret, presented token, then per event: type, id or '', data JSON,
--   top-level fields JSON or '', containment or the reason of a nudge, workspace path or '',
--   1 when it starts processes for the run, else ''
-- Reply: OK
-- Errors: lease_expired, task_mismatch, stale_fence, unknown_fence
local tid, rid = ARGV[1], ARGV[2]
local r, err = witness(tid, rid, ARGV[3], ARGV[4])
if err then return err end
local had = {}
for _, id in ipairs(call('LRANGE', K('told:', rid), 0, 127)) do had[id] = true end
for i = 5, #ARGV, 7 do
  local kind, id = ARGV[i], ARGV[i + 1]
  local again = had[id]
  if id ~= '' and not again then
    had[id] = true
    call('LPUSH', K('told:', rid), id)
  end
  if kind == 'run.launched' then
    again = r.launched == '1'
    put(r, 'launched', '1', 'containment', ARGV[i + 4], 'exec', ARGV[i + 6])
    r.launched = '1'
    if ARGV[i + 5] ~= '' then put(r, 'workspace', ARGV[i + 5]) end
  end
  if not again and kind == 'run.stalled' then
    nudge(tid, rid, r, 'silent', ARGV[i + 4])
  elseif not again then
    emit(kind, { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid }, ARGV[i + 2],
      ARGV[i + 3] ~= '' and ARGV[i + 3] or nil)
  end
end
call('LTRIM', K('told:', rid), 0, 127)
return 'OK'
