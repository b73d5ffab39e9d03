-- What every script shares: key names, loading, moving, events.
-- KEYS[1] is the namespace's meta key; every other key is made from its prefix,
-- so all keys of a script carry one hash tag.
local call = redis.call
local P = string.sub(KEYS[1], 1, -5)
local function K(kind, id) return P .. kind .. (id or '') end
-- Integers leave Lua through this, never through "..": 1.7e+15 is no number.
local function F(n) return string.format('%.0f', n) end
local function num(s) return tonumber(s or '0') or 0 end

local META = K('meta')
local now, raw -- store time and the server's own clock, in ms
local paused, floor
local function server_clock()
  local t = call('TIME')
  return num(t[1]) * 1000 + math.floor(num(t[2]) / 1000)
end

-- refuse builds the error "code key=value ..."; no value may hold a space.
local function refuse(code, ...)
  local out = { code }
  local a = { ... }
  for i = 1, #a, 2 do out[#out + 1] = a[i] .. '=' .. tostring(a[i + 1]) end
  if #out == 1 then out[2] = 'refused=1' end
  return redis.error_reply(table.concat(out, ' '))
end

-- load reads a whole hash into a table; nil when there is none.
local function load(key)
  local flat = call('HGETALL', key)
  if #flat == 0 then return nil end
  local t = {}
  for i = 1, #flat, 2 do t[flat[i]] = flat[i + 1] end
  return t
end

local function quote(s) return cjson.encode(s or '') end

-- emit appends one event; its id is the dense sequence number, so sequence,
-- cursor and stream id are one. data is a JSON object, more are extra fields.
local function emit(kind, e, data, more)
  local seq = F(call('HINCRBY', META, 'seq', 1))
  local f = { 'type', kind, 'at', F(raw), 'now', F(now), 'actor', e.actor or '', 'data', data }
  for _, k in ipairs({ 'task', 'run', 'agent', 'token', 'reason' }) do
    if e[k] and e[k] ~= '' then
      f[#f + 1] = k
      f[#f + 1] = e[k]
    end
  end
  if more then
    f[#f + 1] = 'top'
    f[#f + 1] = more
  end
  call('XADD', K('events'), seq .. '-0', unpack(f))
  call('PUBLISH', K('tail'), seq)
end

-- wake tells every server process that a topic changed.
local function wake(topic) call('PUBLISH', K('wake'), topic) end

-- MAX_REPLY bounds what a listing reads, in bytes: a large reply would keep
-- every other caller waiting. The first row is always given.
local MAX_REPLY = 4194304

local TERMINAL = { completed = true, rejected = true, failed = true, cancelled = true }

-- move takes a task from one state set to another; further fields are written
-- with it. from is '' for a task being created.
local function move(id, t, to, ...)
  if t.state and t.state ~= '' then call('ZREM', K('by-state:', t.state), id) end
  call('ZADD', K('by-state:', to), t.order, id)
  if TERMINAL[to] then call('ZADD', K('terminal'), F(now), id) end
  call('HSET', K('task:', id), 'state', to, 'updated', F(raw), ...)
  t.state = to
end

-- once finds the record of a request made before. It returns the recorded
-- answer, or an error when the same key came with another body.
local function once(key, body)
  if key == '' then return nil end
  local was = call('GET', K('req:', key))
  if not was then return nil end
  if string.sub(was, 1, 64) ~= body then return nil, refuse('idempotency_conflict') end
  return string.sub(was, 66)
end

-- remember records the answer of a request for ms milliseconds. This is the
-- life of a record, never of a lease.
local function remember(key, body, answer, ms)
  if key ~= '' then call('SET', K('req:', key), body .. ' ' .. answer, 'PX', F(ms)) end
end
local DAY = 86400000
-- GRACE is how long after an adoption a holder may reclaim its lease, in ms of
-- store time.
local GRACE = 30000
