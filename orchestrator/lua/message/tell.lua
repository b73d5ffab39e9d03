-- needs: agent message
-- tell sends a message of a person, or of a client, to a task or an agent. The key of an agent that is not an
-- operator's sends one of the agent itself, in its own conversation. What a client sends to an agent goes to the task
-- of the client that the agent runs.
-- ARGV: receiver, actor, operator 0|1, key that sends it, message id, type, body, data (JSON or ''), id of the
--   message that it answers or '', hash of the message, most bytes of the messages of a key and of a tree
-- Reply: id, sent. The same again changes nothing.
-- Errors: not_found, forbidden, judge_due, agent_gone, task_closed, idempotency_conflict, inbox_full,
--   quota_exceeded, rate_limited, state_conflict (the agent runs no task of the client, or more than one)
local to, by, key = ARGV[1], ARGV[2], ARGV[4]
local m = { id = ARGV[5], to = to, kind = 'person', from = key, name = '', task = '', run = '', agent = '', token = '',
  actor = key, type = ARGV[6], body = ARGV[7], data = ARGV[8], reply = ARGV[9], hash = ARGV[10], credential = key,
  key = by }
local sender = call('HMGET', K('key:', key), 'name', 'scopes')
local to_agent, of_client, err = string.sub(to, 1, 5) ~= 'task_', sender[2] == 'client', nil
if to_agent and not of_client then
  local a = read_agent(to, 'name')
  err = check_allowed(a, by, ARGV[3])
  if err then return err end
  m.agent = to
  if actor_name(to, a, by, ARGV[3]) == to then -- @agent-tells-itself
    m.kind, m.from, m.name, m.actor = 'agent', to, a.name or '', to
  end
end
if m.kind == 'person' then
  m.name = sender[1] or ''
  if of_client then m.kind = 'client' end -- @client-is-no-person
end
if to_agent and of_client then -- the message names the agent, and is kept at the task
  m.hash, m.agent = m.hash .. ' ' .. to, to -- @same-agent
  m.to = call('HGET', K('message:', m.id), 'to') or m.to -- @told-before
end
local before = sent_before(m)
if before then return before.err and before or named(before) end
if to_agent and of_client then
  m.to, err = task_of_client(to, key)
  if err then return err end
end
err, m.root = check_receiver(m.to)
err = err or check_reply(m.reply, m.to)
if err then return err end
local sent = send_message(m, num(ARGV[11]), m.from == m.to)
if sent.err then return sent end
wake_runs(m.to)
return named(sent)
