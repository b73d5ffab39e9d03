-- needs: agent prompt_row session sessionmoney
-- prompt_session leaves a prompt for a session. Prompts are delivered one after the other.
-- ARGV: session, actor, request key, body hash, id of the prompt, text, ms until its deadline,
--   most open prompts, most prompts that are kept, limits of spending (JSON, see _sessionmoney.lua), cap of the day's
--   envelope or ''
-- Reply: prompt_row
-- Errors: not_found, state_conflict (the session has ended or works on a task, or too many prompts are open),
--   budget_exceeded,
--   idempotency_conflict
local sid, by, pid, most = ARGV[1], ARGV[2], ARGV[5], num(ARGV[8])
local was, err = find_request(ARGV[3], ARGV[4])
if err then return err end
if was then return (prompt_row(was, 0)) or refuse('not_found', 'kind', 'prompt') end
local s = pick(K('asession:', sid), 'agent', 'name', 'ended', 'stop', 'task', 'metered')
if not s.agent then return refuse('not_found', 'kind', 'agent_session') end
if s.ended then return refuse('state_conflict.session_ended', 'state', 'stopped') end -- @prompts-what-lives
if s.stop then return refuse('state_conflict.session_stopping', 'state', 'stopping') end -- @prompts-what-stays
local works = (s.task or '') ~= ''
if works then return refuse('state_conflict.session_works', 'taskId', s.task) end -- @prompts-what-waits
local limits, cap = cjson.decode(ARGV[10]), ARGV[11]
sessions.give_back(sid) -- @gives-back-first
local no = session_money.refusal(s.name or '', s.metered, limits, cap)
if no then return no end
sessions.end_overdue(sid, s.agent)
sessions.yield_wake(sid)
local open = call('ZCARD', K('open-prompts:', sid))
if open >= most then -- @bounds-prompts
  return refuse('state_conflict.open_prompts', 'open', F(open), 'limit', F(most))
end

emit('agent_session.prompted', { agent = s.agent, actor = by }, '{"sessionId":' .. quote(sid) .. ',"promptId":' ..
  quote(pid) .. ',"bytes":' .. F(#ARGV[6]) .. ',"before":null,"after":{"state":"queued"}}')
put(record(K('prompt:', pid)), 'session', sid, 'agent', s.agent, 'by', by, 'text', ARGV[6], 'state', 'queued',
  'created', RAW, 'due', F(now + num(ARGV[7])), 'number', meta.seq)
session_money.reserve(pid, 'prompt', s.name or '', read_agent(s.agent).role or '', limits, cap)
sessions.list_prompt(sid, pid, num(ARGV[9]))
save()
if open == 0 then sessions.offer_next(sid, s.agent) end
remember(ARGV[3], ARGV[4], pid, DAY)
return (prompt_row(pid, 0))
