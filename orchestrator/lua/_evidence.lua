-- witness checks a run's own credential for evidence: it is good until 15
-- minutes after the lease ended, and never changes the state of the task.
local LATE = 900000

local function witness(tid, rid, secret)
  local r = load(K('run:', rid))
  if not r or r.secret ~= secret then return nil, refuse('lease_expired', 'cause', 'unknown') end
  if r.task ~= tid then return nil, refuse('task_mismatch', 'presented', tid, 'expected', r.task) end
  if r.state ~= 'running' and now - num(r.ended_at) > LATE then
    return nil, refuse('lease_expired', 'cause', 'evidence_closed')
  end
  return r
end
