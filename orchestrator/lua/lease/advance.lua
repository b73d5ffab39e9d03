-- needs: complete grant
-- reads: task 1, run 2, deadlines 1, env 1, spec 1
-- advance completes a lease and leases the agent's next tasks in the same step: both are done or
-- neither. A repeat tells the same state and shows those of the leases that still hold. When the
-- tokens of the floor are used up it leases nothing, and the next grant repairs that. It also
-- leases nothing to an agent that may not get a lease.
-- ARGV: those of complete, then those of grant
-- Reply: state, grant (the reply of grant)
-- Errors: those of complete; store_changed, idempotency_conflict, judge_due
local state
local got = grant(8, function()
  local done = complete(unpack(ARGV, 1, 8)) -- @advance-completes
  if type(done) == 'table' then return done end
  state = done
end)
return state and named{ state = state, grant = got } or got
