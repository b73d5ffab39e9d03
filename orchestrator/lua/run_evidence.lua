-- needs: evidence
-- run_evidence keeps what a run has changed; what the same run hands in later
-- takes its place. The task never changes.
-- ARGV: task, run, secret, presented token, evidence JSON, what lists show of it
-- Reply: OK
-- Errors: lease_expired, task_mismatch, stale_fence, unknown_fence
local rid = ARGV[2]
local _, err = witness(ARGV[1], rid, ARGV[3], ARGV[4])
if err then return err end
local key = K('evidence:', rid)
local was = call('GET', key)
if was and string.match(was, '^%d+ (.*)$') == ARGV[5] then return 'OK' end
call('SET', key, RAW .. ' ' .. ARGV[5])
call('SET', K('work:', rid), ARGV[6])
return 'OK'
