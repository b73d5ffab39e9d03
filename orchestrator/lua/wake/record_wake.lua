-- needs: agent session sessionmoney wake wake_stamp
-- record_wake stores a decision about a wake. One that goes out becomes a prompt of its session, which is
-- under way until an adapter accepts it, if all that the decision was made by is still the same.
-- ARGV: agent name, session or '', request key, body hash, id of the wake, source, occasion, result, reason,
--   policy snapshot, ms at which a wake is allowed next or '', ms that rows are kept, answer to remember;
--   of a wake that goes out also stamp of the decision, text, ms until it has to be accepted, ms until its
--   deadline, most prompts that are kept, number of the last message that it is about, whether only messages of
--   agents are its occasion 0|1, digest of the context, most wakes of a cycle, limits
--   of spending (JSON, see _sessionmoney.lua), cap of the day's envelope or ''
-- Reply: stale 0|1 (the decision does not hold any more, and nothing was written), or repeated (the answer
--   of the same request)
-- Errors: idempotency_conflict
local name, sid, id, keep, stamp = ARGV[1], ARGV[2], ARGV[5], ARGV[12], ARGV[14]
local was, err = find_request(ARGV[3], ARGV[4])
if err then return err end
if was then return named{ stale = 0, repeated = was } end
local s = sid ~= '' and pick(K('asession:', sid), 'agent', 'owner', 'name', 'ended') or {}
local known = s.agent and s.name == name and not s.ended -- @rows-of-own-sessions
if not stamp then
  if known or call('ZSCORE', K('policies'), name) then -- @rows-of-known-names
    wakes.add_row(name, { id = id, session = sid, known = known, source = ARGV[6], occasion = ARGV[7],
      result = ARGV[8], reason = ARGV[9], snapshot = ARGV[10], next = ARGV[11] }, num(keep))
  end
  remember(ARGV[3], ARGV[4], ARGV[13], DAY)
  return named{ stale = 0 }
end
if wake_stamp(name, sid, wakes.read(sid)) ~= stamp then return named{ stale = 1 } end -- @same-facts
if wakes.in_cycle(name, s.owner, 0) >= num(ARGV[22]) then return named{ stale = 1 } end -- @bounds-cycle
local limits, cap = cjson.decode(ARGV[23]), ARGV[24]
local left, unspent = session_money.left('wake', name, limits, cap)
if not session_money.admits(left, unspent, pick(s[1], 'metered').metered) then -- @bounds-wake-money
  return named{ stale = 1 }
end
sessions.end_overdue(sid, s.agent)
wakes.in_cycle(name, s.owner, 1)
emit('agent_session.waking', { agent = s.agent, actor = 'server' }, wakes.event(sid, id, ARGV[6], ARGV[7], ARGV[10]))
put(record(K('prompt:', id)), 'session', sid, 'agent', s.agent, 'by', '', 'text', ARGV[15], 'state', 'queued',
  'created', RAW, 'wake_due', F(now + num(ARGV[16])), 'due', F(now + num(ARGV[17])), 'number', meta.seq, 'wake', name,
  'wake_source', ARGV[6], 'wake_occasion', ARGV[7], 'wake_snapshot', ARGV[10], 'wake_seen', ARGV[19],
  'wake_by_agents', ARGV[20], 'wake_keep', keep, 'wake_context', ARGV[21],
  'wake_cycle', wakes.cycle())
put(wakes.read(sid), 'under_way', id)
session_money.reserve(id, 'wake', name, read_agent(s.agent).role or '', limits, cap)
save()
wakes.keep(wakes.read(sid), num(keep))
sessions.list_prompt(sid, id, num(ARGV[18]))
sessions.offer_next(sid, s.agent)
remember(ARGV[3], ARGV[4], ARGV[13], DAY)
return named{ stale = 0 }
