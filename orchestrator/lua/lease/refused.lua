-- flags: allow-oom
-- needs: refused
-- refused writes a refused write into the log: each of the first 20 of a run
-- and minute; the others are told together when the minute is over.
-- The event belongs to the run's own task, whatever task was presented; that
-- of a run which is not known any more belongs to none.
-- ARGV: run, verb, code, presented or 0, current or 0
-- Reply: 1 when an event was written, else 0
local rid = ARGV[1]
local of = call('HMGET', K('run:', rid), 'task', 'token')
local last = { ARGV[2], ARGV[3], ARGV[4], ARGV[5] }
if last[3] == '0' then last[3] = of[2] or '0' end
if last[4] == '0' then last[4] = call('HGET', K('task:', of[1] or ''), 'token') or '0' end
return count_refused(rid, last, 1, 20)
