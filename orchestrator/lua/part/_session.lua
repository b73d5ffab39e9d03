-- needs: agent sessionmoney wake
-- Agent sessions, and the prompts that people and wakes send to them. A session has one prompt at a time: the
-- others wait in open-prompts, and ready-prompts of an agent has the first of each session until it
-- is accepted. The member turn of a session is the prompt whose turn is under way: it was answered, its agent had
-- asked for a task, and no report says yet that the session goes on. The other prompts wait for that.

-- The table has what scripts share of them. WEEK is how long a prompt and a session are kept after their
-- end. LATE is how long after its deadline the adapter may still say what became of a prompt that it has
-- accepted.
local sessions = { WEEK = 604800000, LATE = 30000 }

-- KEPT bounds the bytes of the prompts that have ended and of their answers, for all sessions that one key has
-- registered. RECORD is about what a prompt has besides.
local KEPT, RECORD = 67108864, 512

-- sessions.character_at is the last offset up to n at which a character of a text begins or ends.
function sessions.character_at(text, n)
  while n > 0 and n < #text and math.floor(string.byte(text, n + 1) / 64) == 2 do n = n - 1 end -- @whole-characters
  return n
end

function sessions.read_prompt(pid)
  return pick(K('prompt:', pid), 'session', 'agent', 'state', 'reason', 'due', 'number', 'wake', 'wake_due')
end

-- sessions.overdue_state is what a prompt that nobody has ended has become by its deadline, and why; else nil.
function sessions.overdue_state(p)
  local due = p.wake and p.wake_due or p.due
  if p.state == 'queued' and now >= num(due) then return 'expired', '' end -- @prompt-deadline
  if p.state == 'accepted' and now >= num(p.due) + sessions.LATE then return 'failed', 'timeout' end -- @answer-deadline
end

-- sessions.offer_next makes the oldest open prompt of a session the one that its agent gets.
function sessions.offer_next(sid, agent)
  local head = call('ZRANGE', K('open-prompts:', sid), 0, 0)[1]
  if not head then return end
  if (pick(K('asession:', sid), 'turn').turn or '') ~= '' then return end -- @waits-for-turn
  local p = sessions.read_prompt(head)
  if p.state ~= 'queued' then return end -- @one-prompt
  call('ZADD', K('ready-prompts:', agent), p.number, head)
  wake('commands ' .. agent)
end

-- sessions.set_turn notes whose turn is under way in a session, or '' for none.
function sessions.set_turn(sid, pid)
  local s = pick(K('asession:', sid), 'turn')
  put(s, 'turn', pid)
end

-- sessions.begin_turn begins the turn of a prompt. An adapter can answer another prompt than the one that it gets,
-- which waits then.
function sessions.begin_turn(sid, pid, agent)
  sessions.set_turn(sid, pid)
  local head = call('ZRANGE', K('open-prompts:', sid), 0, 0)[1] or ''
  call('ZREM', K('ready-prompts:', agent), head) -- @offers-none-in-turn
end

-- sessions.end_prompt gives a prompt its last state.
function sessions.end_prompt(pid, p, state, reason)
  if p.wake and p.state == 'queued' then
    wakes.settle(pid, p, false, state == 'refused' and reason == 'prompt_active') -- @refunds-wake
  elseif p.wake then
    wakes.finish(p)
  end
  put(p, 'state', state, 'reason', reason, 'ended', RAW)
  session_money.close(pid) -- @ends-envelope-with-prompt
  call('ZREM', K('open-prompts:', p.session), pid)
  call('ZREM', K('ready-prompts:', p.agent), pid)
  call('PEXPIRE', K('prompt:', pid), F(sessions.WEEK)) -- @forgets-prompts
  sessions.keep_prompt(pid, p)
  wake('prompt ' .. pid)
end

-- sessions.keep_prompt counts a prompt that has ended. The oldest ones of its key make room.
function sessions.keep_prompt(pid, p)
  local owner = pick(K('asession:', p.session), 'owner').owner or ''
  local kept, sizes = K('kept-prompts:', owner), K('kept-bytes:', owner)
  local bytes = RECORD + call('HSTRLEN', K('prompt:', pid), 'text') +
    (p.answer and #p.answer or call('HSTRLEN', K('prompt:', pid), 'answer'))
  call('ZADD', kept, NOW, pid)
  call('HSET', sizes, pid, F(bytes))
  local total = call('HINCRBY', sizes, 'total', F(bytes))
  for _, key in ipairs({ kept, sizes }) do call('PEXPIRE', key, F(sessions.WEEK + DAY)) end
  local forgotten = call('ZRANGE', kept, '-inf', F(now - sessions.WEEK), 'BYSCORE', 'LIMIT', 0, 4) -- @uncounts-forgotten
  for _, old in ipairs(forgotten) do total = total - sessions.drop_prompt(owner, old) end
  while total > KEPT do -- @bounds-kept-bytes
    local old = call('ZRANGE', kept, 0, 0)[1]
    if old == pid then -- it is alone, so the count was wrong
      call('HSET', sizes, 'total', F(bytes)) -- @corrects-kept-bytes
      break
    end
    total = total - sessions.drop_prompt(owner, old)
  end
end

-- sessions.drop_prompt deletes a prompt that has ended, and returns how many bytes were counted for it. A session that
-- has ended goes with its last prompt.
function sessions.drop_prompt(owner, pid)
  local sid = call('HGET', K('prompt:', pid), 'session')
  local bytes = num(call('HGET', K('kept-bytes:', owner), pid))
  call('HINCRBY', K('kept-bytes:', owner), 'total', F(0 - bytes))
  call('HDEL', K('kept-bytes:', owner), pid)
  call('ZREM', K('kept-prompts:', owner), pid)
  call('DEL', K('prompt:', pid))
  if sid then
    call('ZREM', K('session-prompts:', sid), pid)
    local alone = call('ZCARD', K('session-prompts:', sid)) == 0 and call('HEXISTS', K('asession:', sid), 'ended') == 1
    if alone then call('DEL', K('asession:', sid)) end -- @last-prompt
  end
  return bytes
end

-- sessions.check_adapter is the refusal of a caller that is not the present registration of an agent.
function sessions.check_adapter(a, by, operator, incarnation)
  local no = check_allowed(a, by, operator) or check_gone(a, incarnation)
  if no or num(incarnation) == num(a.incarnation) then return no end -- @own-incarnation
  return refuse('agent_gone', 'status', a.status, 'reason', a.reason, 'incarnation', a.incarnation)
end

-- sessions.end_overdue ends the prompts of a session whose deadline has passed.
function sessions.end_overdue(sid, agent)
  local ended = false
  for _, pid in ipairs(call('ZRANGE', K('open-prompts:', sid), 0, -1)) do
    local p = sessions.read_prompt(pid)
    local state, reason = sessions.overdue_state(p)
    if state then
      sessions.end_prompt(pid, p, state, reason)
      ended = true
    end
  end
  if ended then sessions.offer_next(sid, agent) end -- @goes-on-after-overdue
end

-- sessions.list_prompt adds a prompt to those of a session. The oldest ones that have ended make room.
function sessions.list_prompt(sid, pid, most)
  local all = K('session-prompts:', sid)
  call('ZADD', all, meta.seq, pid)
  call('PEXPIRE', all, F(sessions.WEEK + DAY)) -- it outlives its last prompt
  for _, old in ipairs(call('ZRANGE', all, 0, -most - 1)) do -- @trims-prompts
    if not call('ZSCORE', K('open-prompts:', sid), old) then -- @keeps-open-prompts
      sessions.drop_prompt(pick(K('asession:', sid), 'owner').owner or '', old)
      call('ZREM', all, old)
    end
  end
  call('ZADD', K('open-prompts:', sid), meta.seq, pid)
end

-- sessions.give_back closes the envelopes of the prompts that the next prompt of a person ends: overdue ones, and a
-- wake that no adapter has accepted. A refusal after it still writes nothing.
function sessions.give_back(sid)
  local under_way = wakes.read(sid).under_way
  for _, pid in ipairs(call('ZRANGE', K('open-prompts:', sid), 0, -1)) do
    local ends = pid == under_way or sessions.overdue_state(sessions.read_prompt(pid)) -- @gives-back-what-ends
    if ends then session_money.close(pid) end
  end
end

-- sessions.yield_wake ends the wake of a session that no adapter has accepted yet, so that the prompt of a
-- person goes first.
function sessions.yield_wake(sid)
  local pid = wakes.read(sid).under_way
  if not pid or pid == '' then return end
  sessions.end_prompt(pid, sessions.read_prompt(pid), 'refused', 'prompt_active') -- @people-first
end

-- sessions.end_session takes a session off the lists, and ends its prompts. kind is the event: ended or lost.
function sessions.end_session(sid, s, kind, reason, actor)
  call('ZREM', K('asessions'), sid)
  call('ZREM', K('asessions:', s.agent), sid)
  call('ZREM', K('stopping:', s.agent), sid)
  call('ZREM', K('wake-due'), sid) -- @wakes-what-lives
  call('ZREM', K('health-due'), sid) -- @health-of-what-lives
  local name = pick(K('asession:', sid), 'name').name or ''
  if name ~= '' then call('ZREM', K('named-sessions:', name), sid) end -- @names-what-lives
  for _, pid in ipairs(call('ZRANGE', K('open-prompts:', sid), 0, -1)) do
    local p = sessions.read_prompt(pid)
    local state, why = sessions.overdue_state(p) -- @stays-overdue
    sessions.end_prompt(pid, p, state or 'failed', why or 'session_' .. kind) -- @ends-prompts-with-session
  end
  if call('EXISTS', K('session-prompts:', sid)) == 1 then
    put(s, 'ended', RAW, 'state', 'stopped', 'prompt', '', 'turn', '')
    call('PEXPIRE', K('asession:', sid), F(sessions.WEEK)) -- @forgets-sessions
  else -- nobody has prompted it, so nobody will read about it
    call('DEL', K('asession:', sid)) -- @forgets-unused
    s.ended = RAW
  end
  local kinds = { ended = 'agent_session.ended', lost = 'agent_session.lost' }
  emit(kinds[kind], { agent = s.agent, actor = actor, reason = reason },
    '{"sessionId":' .. quote(sid) .. ',"reason":' .. quote(reason) .. '}')
end

-- sessions.lose ends the sessions of an agent that its present registration does not keep, or all of them
-- if it does not participate any more.
function sessions.lose(id, reason)
  local a = read_agent(id)
  for _, sid in ipairs(call('ZRANGE', K('asessions:', id), 0, -1)) do
    local s = pick(K('asession:', sid), 'agent', 'ended', 'incarnation')
    if not a.status or GONE[a.status] or s.incarnation ~= a.incarnation then -- @lost-sessions
      sessions.end_session(sid, s, 'lost', reason, 'server')
    end
  end
end
