-- flags: allow-oom
-- needs: promote queue
-- urgent
-- tick keeps store time true and moves due delayed tasks on.
-- ARGV: limit
-- Reply: 1 when a chore is due, else 0
call('HSET', META, 'now', NOW, 'raw', RAW, 'tick', RAW)
call('ZREMRANGEBYSCORE', K('waiters'), '-inf', F(now - 1))
start_due(num(ARGV[1]))
promote(num(ARGV[1]))
return #call('ZRANGEBYSCORE', K('chores'), '(0', NOW, 'LIMIT', 0, 1)
