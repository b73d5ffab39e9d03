-- flags: allow-oom
-- needs: queue end stop
-- chore does the next batch of what a single write left behind: the runs that
-- a hard pause ends.
-- ARGV: actor, limit
-- Reply: number of runs ended
if not call('ZSCORE', K('chores'), 'pause') then return 0 end
return stop_runs(ARGV[1], num(ARGV[2]))
