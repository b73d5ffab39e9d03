-- unread_of is how many messages wait for a run: in the inbox of its task, and in that of its agent if
-- the agent is registered. A run that is not under a registration could name any agent.
local function unread_of(tid, r)
  if not has_messages() then return 0 end
  pick(r[1], 'agent', 'incarnation')
  local registered = num(r.incarnation) > 0 -- @counts-inbox-of-registered
  return call('ZCARD', K('unread:', tid)) + (registered and call('ZCARD', K('unread:', r.agent)) or 0)
end
