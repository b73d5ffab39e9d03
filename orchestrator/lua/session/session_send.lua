-- needs: capability message
-- session_send sends a message of an agent session to another agent, as the agent of the session.
-- ARGV: prompt, hash of the capability, receiver, message id, type, body, data (JSON or ''), id of the message that
--   it answers or '', hash of the message, most bytes of the messages of a key
-- Reply: id, sent, unread. The same again changes nothing.
-- Errors: session_capability_invalid, not_found, agent_gone, idempotency_conflict, inbox_full, quota_exceeded,
--   rate_limited, validation_failed (the message is to the sender)
local to = ARGV[3]
local p, a, err = capability(ARGV[1], ARGV[2])
if err then return err end
if to == p.agent then return refuse('validation_failed', 'field', '/to') end -- @session-tells-others
local m = { id = ARGV[4], to = to, kind = 'agent', from = p.agent, name = a.name or '', task = '', run = '',
  agent = p.agent, token = '', actor = p.agent, type = ARGV[5], body = ARGV[6], data = ARGV[7], reply = ARGV[8],
  hash = ARGV[9], credential = p.session, key = a.owner, root = '' }
local sent = sent_before(m)
if sent and sent.err then return sent end
if not sent then
  err = check_receiver(to) or check_reply(m.reply, p.agent)
  if err then return err end
  set_actor_is_agent(true)
  sent = send_message(m, num(ARGV[10]))
  if sent.err then return sent end
  wake_runs(to)
  put(p, 'worked', '1') -- @session-works
end
sent.unread = call('ZCARD', K('unread:', p.agent))
return named(sent)
