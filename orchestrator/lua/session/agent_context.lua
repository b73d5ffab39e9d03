-- flags: allow-oom
-- needs: agent capability claimable fence inbox money session_row
-- agent_context shows the holder of a lease or of a session capability what it needs to know before it acts. It
-- changes nothing, and does not count as a call of a tool.
-- ARGV: task or '', run or prompt, secret or hash of the capability, presented token; for the server itself, which
--   presents neither, '', '', '', '' and the session
-- Reply: now and known (from when reports count; store time, ms), agent, metadata (JSON), name, role, caps (a,b), max
--   (concurrent tasks or ''), status, session (session_row, if there is one), prompt, left (ms until its deadline),
--   held (number of tasks), tasks (id, spec, lane, left, answers), unread, senders (kind, id, name, unread), lanes
--   (lane, tasks), more 0|1 (lanes), available (tokens and nano-dollars, of a run), usd (nano-dollars, of a prompt)
-- Errors: those of fenced; session_capability_invalid; not_found
local TASKS, INBOX, SENDERS = 20, 200, 20
local tid = ARGV[1]
local out = { now = NOW, known = reports_count_from() }
local a, inboxes, err
if tid ~= '' then
  local _, r
  _, r, _, err = fenced(tid, ARGV[2], ARGV[3], ARGV[4])
  if err then return err end
  inboxes, out.agent = inboxes_of_run(tid, r), r.agent
  out.available = { free_amount(envelope(tid)) }
  a = #inboxes > 1 and read_agent(r.agent, 'name', 'caps', 'max') or {} -- @context-of-registered
  local n, own = live_sessions(K('asessions:', r.agent))
  if a.status and n == 1 then out.session = session_row(own) end -- @context-of-one-session
elseif ARGV[5] then
  out.agent, out.session = pick(K('asession:', ARGV[5]), 'agent').agent, session_row(ARGV[5])
  if not out.session then return refuse('not_found', 'kind', 'agent_session') end
  inboxes, a = { out.agent }, read_agent(out.agent, 'name', 'caps', 'max')
else
  local p
  p, a, err = capability(ARGV[2], ARGV[3])
  if err then return err end
  inboxes, out.agent = { p.agent }, p.agent
  out.session, out.prompt, out.left = session_row(p.session), ARGV[2], F(num(p.due) - now)
  out.usd = F(num(envelope(ARGV[2]).available_u)) -- @context-of-prompt-money
end
out.metadata = a.status and call('GET', K('metadata:', out.agent)) or false
out.name, out.role, out.caps, out.max, out.status = a.name, a.role, a.caps, a.max, a.status

local held = { tid ~= '' and tid or nil }
out.held = F(#held)
if a.status then
  held, out.held = call('ZRANGE', leases_key(out.agent, a), 0, TASKS - 1), call('ZCARD', leases_key(out.agent, a))
end
out.tasks = {}
for i, id in ipairs(held) do
  local deadline = num(call('ZSCORE', K('deadlines'), id))
  out.tasks[i] = named{ id = id, spec = call('GET', K('spec:', id)), left = F(math.max(0, deadline - now)),
    lane = pick(K('task:', id), 'lane').lane, answers = call('LLEN', K('answers:', id)) }
end

local unread, senders, by_id = 0, {}, {}
for _, inbox in ipairs(inboxes) do
  unread = unread + call('ZCARD', K('unread:', inbox))
  for _, id in ipairs(call('ZRANGE', K('unread:', inbox), 0, INBOX - 1)) do
    local m = call('HMGET', K('message:', id), 'from', 'kind', 'name')
    local s = by_id[m[1]]
    if m[1] and not s and #senders < SENDERS then -- @bounds-senders
      s = { id = m[1], kind = m[2], name = m[3], unread = 0 }
      by_id[m[1]], senders[#senders + 1] = s, s
    end
    if s then s.unread = s.unread + 1 end
  end
end
for i, s in ipairs(senders) do senders[i] = named(s) end
out.unread, out.senders = unread, senders

out.lanes, out.more = claimable(out.agent, a)
return named(out)
