-- needs: fence message quota toolcalls unread
-- reads: task 1, run 2, deadlines 1
-- send_message sends a message of the holder of a lease: to another agent, to a subtask, to the parent
-- of its task, or to the people who follow its own task.
-- ARGV: task, run, secret, presented token, request id, hash of the call, the call in words, receiver or '',
--   message id, type, body, data (JSON or ''), id of the message that it answers or '', hash of the message,
--   most bytes of the messages of a key and of a tree
-- Reply: id, sent, nudge (JSON or ''), unread; or {} when this call ended the run
-- Errors: those of fenced; not_found, forbidden, agent_gone, task_closed, idempotency_conflict, inbox_full,
--   quota_exceeded, rate_limited, validation_failed (the message is to the sender)
local tid, rid, to = ARGV[1], ARGV[2], ARGV[8]
local t, r, deadline, err = fenced(tid, rid, ARGV[3], ARGV[4])
if err then return err end
if to == '' then to = tid end
if to == r.agent then return refuse('validation_failed', 'field', '/to') end -- @tells-others
if string.sub(to, 1, 5) == 'task_' and to ~= tid and pick(t[1], 'parent').parent ~= to -- @tells-parent
    and pick(K('task:', to), 'parent').parent ~= tid then -- @tells-child
  return refuse('forbidden', 'kind', 'message')
end
local owner = key_owner(r.key)
if not owner then return refuse('lease_expired', 'cause', 'key_revoked') end -- @counted-messages
local m = { id = ARGV[9], to = to, kind = 'agent', from = r.agent, name = pick(K('agent:', r.agent), 'name').name or '',
  task = tid, run = rid, agent = r.agent, token = r.token, actor = rid, type = ARGV[10], body = ARGV[11],
  data = ARGV[12], reply = ARGV[13], hash = ARGV[14], credential = rid, key = owner, root = root_of(tid, t) }
local sent = sent_before(m)
if sent and sent.err then return sent end
if not sent then
  err = check_receiver(to) or m.reply ~= '' and check_reply(m.reply, tid, r.agent)
  if err then return err end
  sent = send_message(m, num(ARGV[15]), to == tid)
  if sent.err then return sent end
  wake_runs(to)
end
deadline = confirm_lease(tid, r, deadline)
local nudge = note_tool_call(tid, rid, t, r, deadline, 'send_message ' .. ARGV[6], ARGV[7], ARGV[5], ARGV[5])
if not nudge then return {} end
sent.nudge, sent.unread = nudge, unread_of(tid, r)
return named(sent)
