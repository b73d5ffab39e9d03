-- witness checks a run's own credential for evidence: it is good until 15
-- minutes after the lease ended, no matter who holds the task by then, and never
-- changes the state of the task.
local EVIDENCE_WINDOW = 900000

local function authenticate_run(tid, rid, secret, presented)
  local r = load(K('run:', rid))
  if not r or r.secret ~= secret then return nil, refuse('lease_expired', 'cause', 'unknown') end
  if r.task ~= tid then return nil, refuse('task_mismatch') end
  local shown = num(presented)
  if shown > 0 and not string.find(r.tokens, ',' .. F(shown) .. ',', 1, true) then
    return nil, refuse(shown > num(r.token) and 'unknown_fence' or 'stale_fence', 'presented', F(shown),
      'current', r.token)
  end
  if r.state ~= 'running' and now - num(r.ended_at) > EVIDENCE_WINDOW then -- @evidence-window
    return nil, refuse('lease_expired', 'cause', 'evidence_closed')
  end
  return r
end

-- decided_state returns the state of a task that was decided, else nil. After the
-- decision, what its runs have handed in cannot be changed.
local function decided_state(tid)
  local t = pick(K('task:', tid), 'state', 'closed_by')
  return (call('EXISTS', K('review:', tid)) == 1 or t.state == 'completed' and t.closed_by) and t.state -- @decided
end
