-- needs: agent capability claimable
-- next_task reserves the next turn of an agent session: when the prompt under way is answered, the session takes a
-- task. It reserves nothing if the agent would get no task now. The same again changes nothing.
-- ARGV: prompt, hash of the capability
-- Reply: reserved 0|1, reason (why it is not reserved: draining, busy or none; else ''), lanes (lane, tasks), more
--   0|1 (lanes), unread
-- Errors: session_capability_invalid
local p, a, err = capability(ARGV[1], ARGV[2])
if err then return err end
local reason = ''
local lanes, more = claimable(p.agent, a)
if a.status == 'draining' then
  reason = 'draining'
elseif #lanes == 0 then
  reason = 'none'
elseif a.max and a.max ~= '' and call('ZCARD', leases_key(p.agent, a)) >= num(a.max) then -- @turn-within-capacity
  reason = 'busy'
end
if reason == '' then put(p, 'next', '1', 'worked', '1') end -- @reserves-turn
return named{ reserved = reason == '' and 1 or 0, reason = reason, lanes = lanes, more = more,
  unread = call('ZCARD', K('unread:', p.agent)) }
