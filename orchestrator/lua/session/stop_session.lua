-- stop_session orders the adapter of a session to end it. The session has ended when the adapter reports
-- it.
-- ARGV: session, actor, request key, body hash, id of the command
-- Reply: OK. A session that is being stopped already stays as it is.
-- Errors: not_found, state_conflict (it has ended), idempotency_conflict
local sid, by = ARGV[1], ARGV[2]
local was, err = find_request(ARGV[3], ARGV[4])
if err then return err end
if was then return 'OK' end
local s = pick(K('asession:', sid), 'agent', 'ended', 'stop', 'number')
if not s.agent then return refuse('not_found', 'kind', 'agent_session') end
if s.ended then return refuse('state_conflict.session_ended', 'state', 'stopped') end -- @stops-what-lives
if not s.stop then -- @stops-once
  put(s, 'stop', ARGV[5], 'stop_by', by)
  call('ZADD', K('stopping:', s.agent), s.number, sid)
  emit('agent_session.stopping', { agent = s.agent, actor = by }, '{"sessionId":' .. quote(sid) ..
    ',"before":{"stopping":false},"after":{"stopping":true}}')
  wake('commands ' .. s.agent)
end
remember(ARGV[3], ARGV[4], sid, DAY)
return 'OK'
