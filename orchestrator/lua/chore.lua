-- flags: allow-oom
-- needs: stray lane queue agent end handoff after stop expire void
-- chore does the next batch of what a single write left behind: the runs that
-- a hard pause ends, the leases that nobody reclaimed after an adoption.
-- ARGV: actor, limit
-- Reply: number of leases looked at; fewer than limit when nothing is left
local actor, limit = ARGV[1], num(ARGV[2])
if call('ZSCORE', K('chores'), 'pause') then return stop_runs(actor, limit) end
local due = call('ZSCORE', K('chores'), 'adopted')
if due and num(due) <= now then return end_void(actor, limit) end
return 0
