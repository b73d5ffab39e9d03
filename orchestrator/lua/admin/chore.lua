-- flags: allow-oom
-- needs: end_agent key_leases session stop tree void_leases
-- chore does the next batch of what a single write left behind: the runs that
-- a hard pause ends, the leases that nobody reclaimed after an adoption, those
-- of agents that are gone and of keys that were revoked, and the sessions of agents that are gone.
-- alone
-- ARGV: actor, limit
-- Reply: number of leases looked at, at least one for each agent that is gone;
--   fewer than limit when nothing is left
local actor, limit = ARGV[1], num(ARGV[2])
if call('ZSCORE', K('chores'), 'pause') then return stop_runs(actor, limit) end
local due = call('ZSCORE', K('chores'), 'adopted')
if due and num(due) <= now then return end_void_leases(actor, limit) end -- @grace-is-over
-- The leases of one registration after the other, oldest grant first.
local n = 0
for _, chore in ipairs(call('ZRANGEBYSCORE', K('chores'), 0, 0, 'LIMIT', 0, limit)) do
  if n >= limit then break end
  local room = limit - n
  local id, incarnation, reason = string.match(chore, '^dead:([^:]+):(%d+):(.*)$')
  local above, top = string.match(chore, '^cancel:([^:]+):(.*)$')
  local key = string.match(chore, '^key:(.*)$')
  local kept_by, why = string.match(chore, '^sessions:([^:]+):(.*)$')
  local ended
  if above then
    call('ZREM', K('chores'), chore)
    ended = cancel_below({ above }, top, 'server', room)
  elseif kept_by then
    call('ZREM', K('chores'), chore)
    sessions.lose(kept_by, why)
    ended = 1
  elseif key then
    ended = end_key_leases(key, 'server', room)
    if ended < room then call('ZREM', K('chores'), chore) end
  else
    ended = end_agent_leases(id, incarnation, reason, 'server', room)
    if ended < room then call('ZREM', K('chores'), chore) end
  end
  n = n + math.max(ended, 1)
end
return n
