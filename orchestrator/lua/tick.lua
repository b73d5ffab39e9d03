-- flags: allow-oom
-- needs: queue
-- tick keeps store time true and moves due delayed tasks on.
-- ARGV: limit
-- Reply: {promoted, chores due 0|1}
call('HSET', META, 'now', F(now), 'raw', F(raw), 'tick', F(raw))
call('ZREMRANGEBYSCORE', K('waiters'), '-inf', F(now - 1))
start(num(ARGV[1]))
local n = promote(num(ARGV[1]))
local due = call('ZRANGEBYSCORE', K('chores'), '-inf', F(now), 'LIMIT', 0, 1)
return { n, #due }
