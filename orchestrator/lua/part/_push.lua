-- Push configurations of tasks: where the client of a task wants to be told what happens to it. They end with the
-- task, once its last state was delivered or given up. A configuration stands in push-due while it has something to
-- send, by the store time at which a deliverer may take it: at once, after a failure, or when a claim is over.
local PUSH_DUE = K('push-due')

-- read_push reads a configuration from ARGV: its id, its name in the ids of requests, and what is sealed.
local function read_push(first)
  local p = {}
  for i, name in ipairs({ 'id', 'name', 'url', 'token', 'scheme', 'credentials' }) do p[name] = ARGV[first + i - 1] end
  return p
end

local function push_key(tid, cid) return K('push:', tid .. ' ' .. cid) end

-- check_client_pushes returns the refusal of one more configuration of a client that has too many.
local function check_client_pushes(client, most)
  if call('ZCARD', K('client-pushes:', client)) >= most then -- @bounds-pushes-of-client
    return refuse('quota_exceeded', 'quota', 'client_pushes', 'limit', F(most))
  end
end

-- write_push creates or replaces a configuration. One that is new is told what happens from now on. One that replaces
-- another goes on where that one was, and a claim of it is over.
local function write_push(tid, t, p)
  local key, member = push_key(tid, p.id), tid .. ' ' .. p.id
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
    call('ZADD', PUSH_DUE, NOW, member)
    wake('push')
  end
  put(t, 'push', '1')
  t.push = '1'
end

-- drop_push deletes a configuration with its secrets.
local function drop_push(tid, t, cid)
  local member = tid .. ' ' .. cid
  call('DEL', push_key(tid, cid))
  call('ZREM', PUSH_DUE, member)
  call('ZREM', K('pushes:', tid), cid)
  call('ZREM', K('client-pushes:', t.client), member)
end

-- forget_push is drop_push, and with the last configuration of a task also the updates of the task are deleted.
local function forget_push(tid, t, cid)
  drop_push(tid, t, cid)
  if call('EXISTS', K('pushes:', tid)) == 1 then return end
  call('DEL', K('updates:', tid))
  put(t, 'push', '')
end

-- load_client_task loads a task of a client for a caller who may see it: the client, or an operator. Any other task is
-- not found.
local function load_client_task(tid, key, operator)
  local t = load(K('task:', tid))
  if t and t.client and (t.client == key or operator == '1') then return t end -- @client-configures-own
  return nil, refuse('not_found', 'kind', 'task')
end

local function push_view(tid, cid)
  return named{ task = tid, id = cid, record = call('HGETALL', push_key(tid, cid)) }
end
