-- Wakes. A wake is a prompt of which the record has the member wake. It is under way until an adapter
-- accepts or refuses it, or until its time to be accepted is over. The step that ends this writes its
-- row, and only an accepted wake counts as the last one of its session.

-- CYCLE is how long a cycle of the scheduler lasts, in ms of store time. RECENT is how many bytes of the times of
-- earlier wakes by agents are kept, more than an hour has.
local wakes = { CYCLE = 30000, MOST_ROWS = 1000, RECENT = 100 }

-- wakes.read is what is kept about the wakes of a session.
function wakes.read(sid)
  return pick(K('session-wake:', sid), 'last', 'under_way', 'seen', 'idle', 'unchanged', 'by_agents', 'row', 'keep',
    'settled', 'settled_seen', 'settled_of')
end

-- wakes.keep lets what is kept about a session end with the rows of its wakes.
function wakes.keep(w, ms)
  save()
  call('PEXPIRE', w[1], F(ms)) -- @forgets-wakes
end

-- wakes.cycle is the number of the present cycle.
function wakes.cycle() return F(math.floor(now / wakes.CYCLE)) end

-- wakes.in_cycle is how many wakes of an agent name were reserved in the present cycle for the sessions of one key. n
-- is added to it.
function wakes.in_cycle(name, owner, n)
  local key = K('wakes-in-cycle:', name .. ':' .. owner) -- @cycle-of-key
  local cycle = wakes.cycle()
  local was = call('HMGET', key, 'cycle', 'count')
  local count = was[1] == cycle and num(was[2]) or 0 -- @counts-cycle
  if n == 0 then return count end
  call('HSET', key, 'cycle', cycle, 'count', F(math.max(0, count + n)))
  call('PEXPIRE', key, F(2 * wakes.CYCLE))
  return count + n
end

-- wakes.add_row adds a row to the wakes of a name. A row like the last one of the session counts with
-- it. about has id, session, source, occasion, result, reason, snapshot and next (ms, or '').
function wakes.add_row(name, about, keep)
  local rows, w = K('wakes:', name), nil
  add_total('wakes:' .. about.reason, 1) -- @counts-wakes
  local count, since = 1, RAW
  if about.known then
    w = wakes.read(about.session)
    local was = w.row and w.row ~= '' and cjson.decode(w.row)
    local same = was and was.result == about.result and was.reason == about.reason and was.source == about.source
    if same and about.result ~= 'sent' and call_now('ZREM', rows, w.row) == 1 then -- @counts-same-wakes
      count, since = was.count + 1, was.since
    end
  end
  local number = call('HINCRBY', K('sums'), 'wake_rows', 1)
  local row = '{"id":' .. quote(about.id) .. ',"number":"' .. F(number) .. '","session":' .. quote(about.session) ..
    ',"source":' .. quote(about.source) .. ',"occasion":' .. quote(about.occasion) .. ',"result":' ..
    quote(about.result) .. ',"reason":' .. quote(about.reason) .. ',"snapshot":' .. quote(about.snapshot) ..
    ',"next":' .. quote(about.next) .. ',"at":"' .. RAW .. '","since":"' .. since .. '","count":' .. F(count) .. '}'
  call('ZADD', rows, F(number), row)
  for _, old in ipairs(call('ZRANGE', rows, 0, -wakes.MOST_ROWS - 1)) do call('ZREM', rows, old) end -- @bounds-wake-rows
  for _, old in ipairs(call('ZRANGE', rows, 0, 9)) do
    if raw - num(cjson.decode(old).at) >= keep then call('ZREM', rows, old) end -- @purges-wake-rows
  end
  call('PEXPIRE', rows, F(keep))
  if not w then return end
  put(w, 'row', row, 'keep', F(keep))
  wakes.keep(w, keep)
end

-- wakes.event is what the events of a wake say.
function wakes.event(sid, pid, source, occasion, snapshot)
  return '{"sessionId":' .. quote(sid) .. ',"promptId":' .. quote(pid) .. ',"source":' .. quote(source) ..
    ',"occasion":' .. quote(occasion) .. ',"policy":' .. quote(snapshot) .. '}'
end

-- wakes.finish counts the wakes in a row that led to nothing, when an accepted one has ended. The session is
-- due to be looked at.
function wakes.finish(p)
  pick(p[1], 'worked', 'wake_keep')
  local w = wakes.read(p.session)
  put(w, 'idle', p.worked == '1' and '0' or F(num(w.idle) + 1)) -- @counts-idle-wakes
  wakes.keep(w, num(p.wake_keep)) -- it may have been forgotten before
  call('ZADD', K('wake-due'), 'XX', NOW, p.session)
end

-- wakes.settle ends the time in which a wake is under way. p is its prompt, sent whether an adapter has
-- accepted it, and race whether it was refused for the sake of another prompt.
function wakes.settle(pid, p, sent, race)
  pick(p[1], 'wake', 'wake_source', 'wake_occasion', 'wake_snapshot', 'wake_seen', 'wake_by_agents', 'wake_keep',
    'wake_context', 'wake_cycle')
  local w = wakes.read(p.session)
  put(w, 'under_way', '')
  local about = { id = pid, session = p.session, known = true, source = p.wake_source, occasion = p.wake_occasion,
    snapshot = p.wake_snapshot, next = '', result = 'sent', reason = 'wake_sent' }
  if sent then
    put(w, 'last', NOW, 'seen', p.wake_seen, 'context', p.wake_context) -- @counts-last-wake
    if w.settled then put(w, 'settled_seen', w.settled) end -- @sees-settled
    local recent = string.sub(w.by_agents or '', -wakes.RECENT) -- @bounds-agent-wakes
    if p.wake_by_agents == '1' then put(w, 'by_agents', recent .. ' ' .. NOW) end -- @counts-agent-wakes
  else
    local owner = pick(K('asession:', p.session), 'owner').owner or ''
    local back = p.wake_cycle == wakes.cycle() and -1 or 0 -- @refunds-own-cycle
    wakes.in_cycle(p.wake, owner, back) -- @refunds-cycle
    about.result = race and 'skipped' or 'failed'
    about.reason = race and 'session_prompt_active_race' or 'synthetic_prompt_failed'
  end
  emit('agent_session.woken', { agent = p.agent, actor = 'server', reason = about.reason },
    wakes.event(p.session, pid, p.wake_source, p.wake_occasion, p.wake_snapshot))
  wakes.add_row(p.wake, about, num(p.wake_keep))
end
