-- Clients submit tasks at the endpoint of a pool of agents.

-- What a client keeps: tasks, also those that have ended and were not deleted, and bytes of their inputs.
local MAX_CLIENT_TASKS, MAX_CLIENT_BYTES = 10000, 67108864

-- queued_in_lane is how many tasks wait in a lane or for it.
local function queued_in_lane(lane)
  return call('ZCARD', K('lane:', lane)) + num(call('HGET', K('late'), lane))
end

-- check_pool_queue returns the refusal of a task for a pool in whose queue max_queue tasks wait. The limit 0 refuses
-- nothing.
local function check_pool_queue(lane, max_queue)
  if max_queue > 0 and queued_in_lane(lane) >= max_queue then -- @bounds-queue-of-pool
    return refuse('quota_exceeded', 'quota', 'pool_queue', 'limit', F(max_queue))
  end
end

-- check_client_limits returns the refusal of a task of a client that has too many open tasks, or for whose pool too
-- many wait. The limit 0 refuses nothing.
local function check_client_limits(s, max_open, max_queue)
  local open = call('ZCARD', K('client-open:', s.client))
  if max_open > 0 and open >= max_open then -- @bounds-open-of-client
    return refuse('quota_exceeded', 'quota', 'client_tasks', 'limit', F(max_open))
  end
  local kept, bytes = call('ZCARD', K('by-client:', s.client)), num(call('HGET', K('client-bytes:', s.client), 'inputs'))
  if kept >= MAX_CLIENT_TASKS then -- @bounds-tasks-of-client
    return refuse('quota_exceeded', 'quota', 'client_kept', 'limit', F(MAX_CLIENT_TASKS))
  end
  if bytes + #s.input > MAX_CLIENT_BYTES then -- @bounds-bytes-of-client
    return refuse('quota_exceeded', 'quota', 'client_bytes', 'limit', F(MAX_CLIENT_BYTES))
  end
  return check_pool_queue(s.lane, max_queue)
end
