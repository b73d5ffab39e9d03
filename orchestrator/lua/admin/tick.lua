-- flags: allow-oom
-- needs: promote queue lane
-- urgent
-- tick keeps store time true and moves due delayed tasks on.
-- ARGV: limit
-- Reply: 1 when a chore is due, else 0

-- start_due lets tasks go whose notBefore has come by the clock on the wall, which
-- goes on while store time stands still.
local function start_due(limit)
  for _, id in ipairs(call('ZRANGEBYSCORE', K('starts'), '-inf', RAW, 'LIMIT', 0, limit)) do
    call('ZREM', K('starts'), id)
    local t = load(K('task:', id))
    if t and t.state == 'queued' and t.at == '' and cancelled_ancestor(t) then
      cancel_queued(id, t) -- @drops-cancelled-start
    elseif t and t.state == 'queued' and t.at == '' then
      undelay(id, t)
      enqueue(id, t, 0, t.gate)
    end
  end
end

call('HSET', META, 'now', NOW, 'raw', RAW, 'tick', RAW)
call('ZREMRANGEBYSCORE', K('waiters'), '-inf', F(now - 1))
start_due(num(ARGV[1]))
promote(num(ARGV[1]))
return #call('ZRANGEBYSCORE', K('chores'), '(0', NOW, 'LIMIT', 0, 1)
