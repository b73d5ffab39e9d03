-- needs: push
-- push_put creates or replaces a push configuration of a task of a client. The same request again changes nothing. That
-- of a closed task is told nothing, and stays until it or the task is deleted.
-- ARGV: task, the configuration (6 values), key of the caller, operator 0|1, most of a task, most of a client
-- Reply: what pushes.view shows
-- Errors: not_found, quota_exceeded
local tid, p = ARGV[1], pushes.read(2)
local t, err = pushes.load_task(tid, ARGV[8], ARGV[9])
if err then return err end
if not call('ZSCORE', K('pushes:', tid), p.id) then
  if call('ZCARD', K('pushes:', tid)) >= num(ARGV[10]) then -- @bounds-pushes-of-task
    return refuse('quota_exceeded', 'quota', 'task_pushes', 'limit', ARGV[10])
  end
  local no = pushes.check_client(t.client, num(ARGV[11]))
  if no then return no end
end
pushes.write(tid, t, p)
return pushes.view(tid, p.id)
