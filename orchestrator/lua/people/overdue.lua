-- flags: allow-oom
-- needs: answer facts handoff refused
-- overdue does what has become due: the deadline policy of hand-offs nobody
-- decided in time (deny answers automatically, escalate raises the priority and
-- tells again), and the word about refused writes that were only counted.
-- ARGV: limit
-- Reply: number of chores handled
local due = call('ZRANGEBYSCORE', K('chores'), '(0', NOW, 'LIMIT', 0, ARGV[1])
local n = 0
for _, chore in ipairs(due) do
  local rid = string.match(chore, '^refused:(.*)$')
  if rid then
    n = n + 1
    call('ZREM', K('chores'), chore)
    local was = call('HMGET', K('refused:', rid), 'more', 'verb', 'code', 'presented', 'current')
    if num(was[1]) > 0 then
      call('HSET', K('refused:', rid), 'more', '0')
      emit_refused(rid, { was[2], was[3], was[4], was[5] }, num(was[1]))
    end
  end
  local hid = string.match(chore, '^handoff:(.*)$')
  if hid then
    n = n + 1
    call('ZREM', K('chores'), chore)
    local h = load(K('handoff:', hid))
    if h and h.state == 'open' then
      local t = load(K('task:', h.task))
      if h.policy == 'deny' then -- @denies
        answer_handoff(hid, h, t, 'deadline', '"denied by deadline"', 'null', '', 'denied by deadline')
      else
        if h.policy == 'escalate' then
          put(t, 'pri', F(math.min(9, num(t.pri) + 1)))
        end
        emit('handoff.overdue', { task = h.task, run = h.run, agent = pick(K('run:', h.run), 'agent').agent or '',
          actor = 'deadline' }, '{"state":"handoff","policy":' .. quote(h.policy) ..
          handoff_facts(hid, h.kind, 0, h.policy, h.facts or '') .. assignee_fact(h) .. task_facts(h.task) .. '}')
      end
    end
  end
end
return n
