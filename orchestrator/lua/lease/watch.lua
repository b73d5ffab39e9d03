-- flags: allow-oom
-- needs: agent exec inbox
-- watch tells what has become of a run's lease.
-- ARGV: task, run, secret, presented token (not looked at: watching is not a write),
--   ids of the processes that the adapter knows of: ',id,id,', quiet: no commands, for others than the adapter
-- Reply: state (running, reclaim, or how it ended), closed (closing verb and answer), nudge (JSON),
--   execs (pending_execs), newest (newest_unread, if it was not told yet)
-- Errors: lease_expired, task_mismatch
local tid, rid = ARGV[1], ARGV[2]
local r = call('HMGET', K('run:', rid), 'task', 'secret', 'state', 'closed', 'token', 'nudges',
  'nudge', 'nudge_seen', 'agent', 'incarnation', 'execs', 'key', 'inbox_seen')
if not r[1] or r[2] ~= ARGV[3] then return refuse('lease_expired', 'cause', 'unknown') end
if r[1] ~= tid then return refuse('task_mismatch') end
if r[3] ~= 'running' then return named{ state = r[3], closed = r[4] } end
if void_reason({ agent = r[9], incarnation = r[10], key = r[12] }) then return named{ state = 'expired' } end
if cancelled_ancestor(record(K('task:', tid))) then return named{ state = 'cancelled' } end
if num(r[5]) <= floor then return named{ state = 'reclaim' } end
if now >= num(call('ZSCORE', K('deadlines'), tid)) then return named{ state = 'expired' } end
if ARGV[6] == 'quiet' then return named{ state = 'running' } end
-- A watch delivers a nudge once. If its answer is lost, the next renewal delivers it again.
local nudge
if (r[6] or '0') ~= (r[8] or '0') then
  put(record(K('run:', rid)), 'nudge_seen', r[6])
  nudge = r[7]
end
-- Of messages it tells once, in the same way.
local newest = newest_unread(tid, { K('run:', rid), agent = r[9], incarnation = r[10] })
if newest and num(newest) <= num(r[13]) then newest = nil end -- @tells-messages-once
if newest then put(record(K('run:', rid)), 'inbox_seen', newest) end
return named{ state = 'running', nudge = nudge, execs = pending_execs(rid, { execs = r[11] }, ARGV[5]),
  newest = newest }
