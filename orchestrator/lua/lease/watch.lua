-- flags: allow-oom
-- needs: agent exec
-- watch tells what has become of a run's lease.
-- ARGV: task, run, secret, presented token (not looked at: watching is not a write),
--   ids of the processes that the adapter knows of: ',id,id,', quiet: no commands, for others than the adapter
-- Reply: {running|reclaim|how it ended, class of the run, closing verb and answer, nudge JSON or '',
--   the processes to start: {ms to the call's deadline, order JSON}…}
-- Errors: lease_expired, task_mismatch
local tid, rid = ARGV[1], ARGV[2]
local r = call('HMGET', K('run:', rid), 'task', 'secret', 'state', 'class', 'closed', 'token',
  'nudges', 'nudge', 'nudge_seen', 'agent', 'incarnation', 'execs', 'key')
if not r[1] or r[2] ~= ARGV[3] then return refuse('lease_expired', 'cause', 'unknown') end
if r[1] ~= tid then return refuse('task_mismatch') end
if r[3] ~= 'running' then return { r[3], r[4] or '', r[5] or '', '' } end
local lost = void_reason({ agent = r[10], incarnation = r[11], key = r[13] })
if lost then return { 'expired', lost, '', '' } end
if cancelled_ancestor(record(K('task:', tid))) then return { 'cancelled', 'cancelled', '', '' } end
if num(r[6]) <= floor then return { 'reclaim', '', '', '' } end
if now >= num(call('ZSCORE', K('deadlines'), tid)) then return { 'expired', 'lease_expired', '', '' } end
if ARGV[6] == 'quiet' then return { 'running', '', '', '', {} } end
-- A watch delivers a nudge once. Should its answer be lost, the next renewal
-- tells it again.
local nudge = ''
if (r[7] or '0') ~= (r[9] or '0') then
  put(record(K('run:', rid)), 'nudge_seen', r[7])
  nudge = r[8]
end
return { 'running', '', '', nudge, pending_execs(rid, { execs = r[12] }, ARGV[5]) }
