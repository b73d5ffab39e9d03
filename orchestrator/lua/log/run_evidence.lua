-- needs: evidence
-- run_evidence keeps what a run has changed; what the same run hands in later
-- takes its place, with an event, as long as nobody has decided about the task.
-- The state of the task never changes.
-- ARGV: task, run, secret, presented token, evidence JSON, what lists show of it, its SHA-256
-- Reply: OK
-- Errors: lease_expired, task_mismatch, stale_fence, unknown_fence, task_closed (it was decided),
--   state_conflict (it was replaced too often)
local REPLACED = 50
local tid, rid, digest = ARGV[1], ARGV[2], ARGV[7]
local r, err = authenticate_run(tid, rid, ARGV[3], ARGV[4])
if err then return err end
if key_ended_leases(r.key) then return refuse('lease_expired', 'cause', 'key_revoked') end -- @key-of-evidence
local key = K('evidence:', rid)
local was = call('GET', key)
if was and string.match(was, '^%d+ (.*)$') == ARGV[5] then return 'OK' end
local decided = decided_state(tid)
if decided then return refuse('task_closed', 'kind', 'evidence', 'state', decided) end -- @no-late-evidence
if was then
  local times = num(r.replaced) + 1
  if times > REPLACED then
    return refuse('state_conflict.evidence_replaced', 'cause', 'evidence_replaced', 'limit', REPLACED)
  end
  put(r, 'replaced', F(times))
  emit('run.evidence_replaced', { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid }, -- @replaced
    '{"before":{"digest":' .. quote(r.evidence) .. '},"after":{"digest":' .. quote(digest) .. '}}')
end
put(r, 'evidence', digest) -- @stores-evidence
call('SET', key, RAW .. ' ' .. ARGV[5])
call('SET', K('work:', rid), ARGV[6])
return 'OK'
