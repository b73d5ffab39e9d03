-- flags: allow-oom
-- needs: agent wake wake_stamp lane_mark lane_marks policy session_row session sessionmoney
-- wake_facts shows all that a decision about a wake is made by.
-- alone
-- ARGV: agent name, session, or '' for the one session of the name, limits of spending (JSON, see _sessionmoney.lua),
--   cap of the day's envelope or '', 1 to show lanes and waiters as in wake_cycle
-- Reply: raw, now and adopted (ms), paused 0|1; of the policy rows, newest, over and file as in policy, and
--   away 1 if no server has the directory of policy files although one had it within a day; sessions (how
--   many the name has that live, if none was named), money and unspent (nano-dollars for its wakes today: left, and
--   not spent), short (the envelope that has the least); of the session, if there is one, row (session_row), owner,
--   role, capabilities, stopping 0|1, since, last and unchanged (ms of store time, or 0), under_way 0|1, idle, seen
--   (number), by_agents (ms of store time), in_cycle, stamp; people and agents (unread messages of each that came
--   after seen, up to the first one of a person), newest_message (number of the last unread message), unread, pinned
--   (lane_mark of the tasks that wait for the agent), held (leases), settled 0|1 (a subtask of a task that the agent
--   holds settled after the last wake was accepted), context (digest of the context at the last wake); if they are
--   asked for, lanes and waiters
local name, sid = ARGV[1], ARGV[2]
local id = current_revision(name)
local newest = call('ZRANGE', K('policy-revisions:', name), -1, -1)[1]
local times = call('HMGET', K('policy-lock'), 'until', 'had')
local lock, had = num(times[1]), num(times[2])
local facts = { raw = RAW, now = NOW, known = reports_count_from(),
  paused = paused ~= '' and 1 or 0, rows = id ~= '' and { (policy_row(id)) } or {}, newest = newest or '',
  over = newest and call('HGET', K('policy-revision:', newest), 'over') or '',
  file = lock > now and call('HGET', K('policy-files'), name) or '', -- @wakes-by-file
  away = lock <= now and had > 0 and now < had + DAY and 1 or 0, -- @directory-away
  sessions = 0 }
do
  local left, unspent, short = session_money.left('wake', name, cjson.decode(ARGV[3]), ARGV[4])
  facts.money, facts.unspent, facts.short = F(left), F(unspent), short
end
if sid == '' then facts.sessions, sid = live_sessions(K('named-sessions:', name)) end
local one = sid ~= '' and facts.sessions <= 1
local row = one and session_row(sid)
if not row then return named(facts) end
local s = pick(K('asession:', sid), 'agent', 'owner', 'stop', 'since')
local a, w = read_agent(s.agent, 'caps'), wakes.read(sid)
local p = w.under_way and w.under_way ~= '' and sessions.read_prompt(w.under_way)
local seen = w.seen or '0'
local people, agents = 0, 0
local news = call('ZRANGE', K('unread:', s.agent), '(' .. seen, '+inf', 'BYSCORE') -- @looks-for-people
for _, message in ipairs(news) do
  if call('HGET', K('message:', message), 'kind') == 'agent' then agents = agents + 1 else people = people + 1 end
  if people > 0 then break end
end
facts.row, facts.owner, facts.role, facts.capabilities = row, s.owner, a.role, a.caps or ''
facts.stopping = s.stop and 1 or 0
facts.since = s.since or '0'
facts.last, facts.unchanged, facts.idle, facts.seen = w.last or '0', w.unchanged or '0', w.idle or '0', seen
facts.by_agents, facts.in_cycle = w.by_agents or '', wakes.in_cycle(name, s.owner, 0)
facts.stamp = wake_stamp(name, sid, w)
facts.under_way = p and p.state == 'queued' and not sessions.overdue_state(p) and 1 or 0
facts.people, facts.agents, facts.unread = people, agents, call('ZCARD', K('unread:', s.agent))
facts.newest_message = call('ZRANGE', K('unread:', s.agent), -1, -1, 'WITHSCORES')[2] or '0'
facts.pinned, facts.held = lane_mark('agent:' .. s.agent), call('ZCARD', leases_key(s.agent, a))
local news_of = w.settled ~= w.settled_seen and w.settled_of -- @settled-since
local settled = news_of and call('ZSCORE', leases_key(s.agent, a), news_of)
facts.settled = settled and 1 or 0
facts.context = call('HGET', w[1], 'context') or ''
if ARGV[5] == '1' then facts.lanes, facts.waiters = lane_marks(), waiting_requests() end -- @shows-queues
return named(facts)
