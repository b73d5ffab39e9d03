-- needs: queue end answer
-- overdue applies the deadline policy of hand-offs nobody decided in time:
-- deny answers by itself, escalate raises the priority and tells again.
-- ARGV: limit
-- Reply: number of hand-offs handled
local due = call('ZRANGEBYSCORE', K('chores'), '-inf', F(now), 'LIMIT', 0, ARGV[1])
local n = 0
for _, chore in ipairs(due) do
  local hid = string.match(chore, '^handoff:(.*)$')
  if hid then
    n = n + 1
    call('ZREM', K('chores'), chore)
    local h = load(K('handoff:', hid))
    if h and h.state == 'open' then
      local t = load(K('task:', h.task))
      if h.policy == 'deny' then
        decide(hid, h, t, 'deadline', '"denied by deadline"', 'null', 'task.answered')
      else
        if h.policy == 'escalate' then
          call('HSET', K('task:', h.task), 'pri', F(math.min(9, num(t.pri) + 1)))
        end
        emit('handoff.overdue', { task = h.task, actor = 'deadline' },
          '{"state":"handoff","handoffId":' .. quote(hid) .. ',"policy":' .. quote(h.policy) .. '}')
      end
    end
  end
end
return n
