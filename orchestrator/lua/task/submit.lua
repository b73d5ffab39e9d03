-- needs: client create push queue
-- submit creates a task.
-- ARGV: request key, body hash, source task or '', spec (25 values),
--   most open tasks of the client, most tasks in the queue of the pool: 0 refuses nothing,
--   id of a push configuration or '', the rest of it (5 values), most push configurations of the client,
--   1 if the instance that the task is for takes no new ones
-- Reply: task, created (ms), repeated (1 when the same request has made the task before)
-- Errors: idempotency_conflict, too_many_lanes, not_found, state_conflict, budget_exceeded (the house),
--   quota_exceeded (of a client), agent_draining
local key, body, source = ARGV[1], ARGV[2], ARGV[3]
local was, err = find_request(key, body)
if err then return err end
if was then return named{ task = was, repeated = 1 } end
local s = read_spec(4)
-- A client may have chosen the id, whose request may have been forgotten meanwhile.
local first = s.client ~= '' and call('HGET', K('task:', s.id), 'request')
if first then
  if first ~= body then return refuse('idempotency_conflict') end -- @same-client-task
  return named{ task = s.id, repeated = 1 }
end
if ARGV[38] == '1' then return refuse('agent_draining') end -- @closed-instance
if not lane_available(s.lane) then return refuse('too_many_lanes', 'limit', MAX_LANES) end
local old
if source ~= '' then
  local t = load(K('task:', source))
  old = t and last_open_run(t)
  if t and t.state == 'leased' then
    return refuse('state_conflict.wrong_state', 'state', 'leased', 'need', 'a_task_that_is_not_running',
      'field', '/fixes')
  end
  if not t then return refuse('not_found', 'kind', 'task', 'field', '/fixes') end
end
local no = s.client ~= '' and check_client_limits(s, num(ARGV[29]), num(ARGV[30])) or check_covered(s)
local push = pushes.read(31)
if not no and push.id ~= '' then no = pushes.check_client(s.client, num(ARGV[37])) end
if no then return no end
local extra
if s.fixes ~= '' then extra = ',"fixes":' .. quote(s.fixes) end
local t = create_task(s, old, extra)
if s.client ~= '' then
  put(t, 'request', body)
  call('HINCRBY', K('client-bytes:', s.client), 'inputs', F(#s.input)) -- @counts-bytes-of-client
end
if push.id ~= '' then pushes.write(s.id, t, push) end
remember(key, body, s.id, DAY)
return named{ task = s.id, created = RAW }
