-- flags: allow-oom
-- needs: push
-- push_delete deletes a push configuration. One that does not exist is deleted already. A request that is under way
-- may still arrive.
-- ARGV: task, id of the configuration, key of the caller, operator 0|1
-- Reply: 1 if there was one
-- Errors: not_found (the task)
local tid, cid = ARGV[1], ARGV[2]
local t, err = pushes.load_task(tid, ARGV[3], ARGV[4])
if err then return err end
if not call('ZSCORE', K('pushes:', tid), cid) then return 0 end
pushes.forget(tid, t, cid)
return 1
