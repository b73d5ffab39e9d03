-- Agent sessions, and the prompts that people send to them. A session has one prompt at a time: the
-- others wait in open-prompts, and ready-prompts of an agent has the first of each session until it
-- is accepted.

-- WEEK is how long a prompt and a session are kept after their end. LATE is how long after its deadline
-- the adapter may still say what became of a prompt that it has accepted.
local WEEK, LATE = 604800000, 30000

local function read_prompt(pid)
  return pick(K('prompt:', pid), 'session', 'agent', 'state', 'reason', 'due', 'number')
end

-- overdue_state is what a prompt that nobody has ended has become by its deadline, and why; else nil.
local function overdue_state(p)
  if p.state == 'queued' and now >= num(p.due) then return 'expired', '' end -- @prompt-deadline
  if p.state == 'accepted' and now >= num(p.due) + LATE then return 'failed', 'timeout' end -- @answer-deadline
end

-- offer_next makes the oldest open prompt of a session the one that its agent gets.
local function offer_next(sid, agent)
  local head = call('ZRANGE', K('open-prompts:', sid), 0, 0)[1]
  if not head then return end
  local p = read_prompt(head)
  if p.state ~= 'queued' then return end -- @one-prompt
  call('ZADD', K('ready-prompts:', agent), p.number, head)
  wake('commands ' .. agent)
end

-- end_prompt gives a prompt its last state.
local function end_prompt(pid, p, state, reason)
  p.state, p.reason = state, reason
  put(p, 'state', state, 'reason', reason, 'ended', RAW)
  call('ZREM', K('open-prompts:', p.session), pid)
  call('ZREM', K('ready-prompts:', p.agent), pid)
  call('PEXPIRE', K('prompt:', pid), F(WEEK)) -- @forgets-prompts
  wake('prompt ' .. pid)
end

-- end_overdue ends the prompts of a session whose deadline has passed.
local function end_overdue(sid, agent)
  local ended = false
  for _, pid in ipairs(call('ZRANGE', K('open-prompts:', sid), 0, -1)) do
    local p = read_prompt(pid)
    local state, reason = overdue_state(p)
    if state then
      end_prompt(pid, p, state, reason)
      ended = true
    end
  end
  if ended then offer_next(sid, agent) end -- @goes-on-after-overdue
end

-- end_session takes a session off the lists, and ends its prompts. kind is the event: ended or lost.
local function end_session(sid, s, kind, reason, actor)
  call('ZREM', K('asessions'), sid)
  call('ZREM', K('asessions:', s.agent), sid)
  call('ZREM', K('stopping:', s.agent), sid)
  for _, pid in ipairs(call('ZRANGE', K('open-prompts:', sid), 0, -1)) do
    end_prompt(pid, read_prompt(pid), 'failed', 'session_' .. kind) -- @ends-prompts-with-session
  end
  s.ended = RAW
  if call('EXISTS', K('session-prompts:', sid)) == 1 then
    put(s, 'ended', RAW, 'state', 'stopped', 'prompt', '')
    call('PEXPIRE', K('asession:', sid), F(WEEK)) -- @forgets-sessions
  else -- nobody has prompted it, so nobody will read about it
    call('DEL', K('asession:', sid)) -- @forgets-unused
  end
  local kinds = { ended = 'agent_session.ended', lost = 'agent_session.lost' }
  emit(kinds[kind], { agent = s.agent, actor = actor, reason = reason },
    '{"sessionId":' .. quote(sid) .. ',"reason":' .. quote(reason) .. '}')
end

-- lose_sessions ends the sessions of an agent that does not participate any more.
local function lose_sessions(id, reason, actor)
  for _, sid in ipairs(call('ZRANGE', K('asessions:', id), 0, -1)) do
    end_session(sid, pick(K('asession:', sid), 'agent', 'ended'), 'lost', reason, actor) -- @loses-sessions
  end
end
