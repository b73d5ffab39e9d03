-- flags: allow-oom
-- needs: promote queue lane
-- urgent
-- tick keeps store time true, moves due delayed tasks on, and tells what else is due.
-- ARGV: limit
-- Reply: names of the work that is due: leases, chores, overdue, agents, calls, totals

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

local function some(index, least) return #call('ZRANGEBYSCORE', index, least, NOW, 'LIMIT', 0, 1) > 0 end
local adopted = call('ZSCORE', K('chores'), 'adopted')
local row = call('XREVRANGE', K('ledger'), '+', '-', 'COUNT', 1)[1]
local charged = row and num(string.match(row[1], '^%d+')) or 0
local due = {}
if some(K('deadlines'), '-inf') then due[#due + 1] = 'leases' end -- @tells-due-leases
if #call('ZRANGEBYSCORE', K('chores'), 0, 0, 'LIMIT', 0, 1) > 0 -- @tells-due-chores
  or call('ZSCORE', K('chores'), 'pause') -- @tells-due-pause
  or adopted and num(adopted) <= now then -- @tells-due-adoption
  due[#due + 1] = 'chores'
end
if some(K('chores'), '(0') then due[#due + 1] = 'overdue' end -- @tells-due-overdue
if some(K('silence'), '-inf') -- @tells-due-agents
  or some(K('health-due'), '-inf') then -- @tells-due-sessions
  due[#due + 1] = 'agents'
end
if some(K('holds'), '-inf') then due[#due + 1] = 'calls' end -- @tells-due-calls
if charged > num(call('HGET', K('totals'), 'ledger')) -- @tells-due-charges
  or call('EXISTS', K('uncounted')) == 1 then -- @tells-due-runs
  due[#due + 1] = 'totals'
end
return due
