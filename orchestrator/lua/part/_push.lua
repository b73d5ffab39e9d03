-- Push configurations of tasks: where the client of a task wants to be told what happens to it. They end with the
-- task, once its last state was delivered or given up, and with the key of the client. A configuration stands in
-- push-due while it has something to send, by the store time at which a deliverer may take it: at once, after a
-- failure, or when a claim is over.
local pushes = {}

-- ended reports whether the key of a client is revoked or has expired. Its configurations are told nothing more.
function pushes.ended(client)
  return client and call('EXISTS', K('key:', client)) == 1 and not key_is_live(client) -- @ends-push-with-key
end

-- read reads a configuration from ARGV: its id, its name in the ids of requests, and what is sealed.
function pushes.read(first)
  local p = { id = ARGV[first] }
  if p.id == '' then return p end
  for i, name in ipairs({ 'id', 'name', 'url', 'token', 'scheme', 'credentials' }) do p[name] = ARGV[first + i - 1] end
  return p
end

function pushes.key(tid, cid) return K('push:', tid .. ':' .. cid) end

-- check_client returns the refusal of one more configuration of a client that has too many.
function pushes.check_client(client, most)
  if call('ZCARD', K('client-pushes:', client)) >= most then -- @bounds-pushes-of-client
    return refuse('quota_exceeded', 'quota', 'client_pushes', 'limit', F(most))
  end
end

-- write creates or replaces a configuration. One that is new is told what happens from now on. One that replaces
-- another goes on where that one was, and a claim of it is over.
function pushes.write(tid, t, p)
  local key, member = pushes.key(tid, p.id), tid .. ':' .. p.id
  local known = call('HMGET', key, 'name', 'cursor', 'created')
  local last = call('LLEN', K('updates:', tid))
  local cursor = known[2] or F(last)
  call('HSET', key, 'name', known[1] or p.name, 'cursor', cursor, 'created', known[3] or RAW, 'url', p.url,
    'token', p.token, 'scheme', p.scheme, 'credentials', p.credentials, 'failures', '0', 'failing', '0', 'claim', '',
    'step', '')
  if not known[1] then
    local order = F(num(meta.order) + 1)
    meta.order = order
    call('ZADD', K('pushes:', tid), order, p.id)
    call('ZADD', K('client-pushes:', t.client), order, member)
  elseif num(cursor) < last then
    call('ZADD', K('push-due'), 'LT', NOW, member)
    wake('push')
  end
  put(t, 'push', '1')
end

-- drop deletes a configuration with its secrets.
function pushes.drop(tid, t, cid)
  local member = tid .. ':' .. cid
  call('DEL', pushes.key(tid, cid))
  call('ZREM', K('push-due'), member)
  call('ZREM', K('pushes:', tid), cid)
  call('ZREM', K('client-pushes:', t.client), member)
end

-- forget is drop, and with the last configuration of a task also the updates of the task are deleted.
function pushes.forget(tid, t, cid)
  pushes.drop(tid, t, cid)
  if call('EXISTS', K('pushes:', tid)) == 1 then return end
  call('DEL', K('updates:', tid))
  put(t, 'push', '')
end

-- load_task loads a task of a client for a caller who may see it: the client, or an operator. Any other task is
-- not found.
function pushes.load_task(tid, key, operator)
  local t = load(K('task:', tid))
  if t and t.client and (t.client == key or operator == '1') then return t end -- @client-configures-own
  return nil, refuse('not_found', 'kind', 'task')
end

function pushes.view(tid, cid)
  return named{ task = tid, id = cid, record = call('HGETALL', pushes.key(tid, cid)) }
end
