-- What verbs read and write. Verbs call commands as if each was carried out at once. In fact writes to sets, lists,
-- logs and texts wait for the end of the call, which may have many verbs, and each key is then written once. A command
-- that reads a key, or changes it in another way, is preceded by what waits for that key. So a verb that refuses or
-- breaks can be undone: what it has written waits apart until it has succeeded.
local touched -- by key: whether something is known of it, or waits
local waiting -- what is written at the end of the call, by key
local order -- the keys of waiting in the order of their first write
local staged -- the writes of this verb, by key
on_call(function() touched, waiting, order = {}, {}, {} end)
on_verb(function() staged = {} end)

-- write runs a command that nobody waits for. If it fails, which only a damaged store causes, the other writes are
-- made all the same, and then the call breaks.
local failed
on_call(function() failed = nil end)
local function write(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then failed = failed or reply end
end
local function check_written()
  if failed then error(failed.err, 0) end
end

-- STEP is how many values one command gets at most.
local STEP = 4000
local function write_values(command, key, values)
  for i = 1, #values, STEP do write(command, key, unpack(values, i, math.min(i + STEP - 1, #values))) end
end

-- KINDS say how a write is added to what waits for its key, and how that is written.
local KINDS = {
  set = {
    add = function(w, member, score) w.values[member] = score end,
    write = function(key, members)
      local added, removed = {}, {}
      for member, score in pairs(members) do
        if score then
          added[#added + 1], added[#added + 2] = score, member
        else
          removed[#removed + 1] = member
        end
      end
      write_values('ZADD', key, added)
      write_values('ZREM', key, removed)
    end,
  },
  list = {
    add = function(w, value) w.values[#w.values + 1] = value end,
    write = function(key, values) write_values('RPUSH', key, values) end,
  },
  log = {
    add = function(w, entry) w.values[#w.values + 1] = entry end,
    write = function(key, entries)
      for _, entry in ipairs(entries) do write('XADD', key, unpack(entry)) end
    end,
  },
  text = {
    add = function(w, value) w.values = value end,
    write = function(key, value) write('SET', key, value) end,
  },
  channel = {
    add = function(w, message) w.values[#w.values + 1] = message end,
    write = function(key, messages) write('PUBLISH', key, table.concat(messages, '\n')) end,
  },
}

local function stage(kind, key, a, b)
  touched[key] = true
  local writes = staged[key]
  if not writes then
    writes = { kind = kind }
    staged[key] = writes
    staged[#staged + 1] = key
  end
  writes[#writes + 1], writes[#writes + 2] = a, b or false
end

-- let_wait adds the writes of a verb for a key to what waits.
local function let_wait(key, writes)
  local w = waiting[key]
  if not w then
    w = { kind = writes.kind, values = {} }
    waiting[key] = w
    order[#order + 1] = key
  end
  local add = KINDS[w.kind].add
  for i = 1, #writes, 2 do add(w, writes[i], writes[i + 1]) end
end

-- A record is a hash, or one of PACKED: these are one string each, since every task has them. known_records has what this
-- call knows of records, by key: their fields, where a field that is false is missing; whether it knows all (whole),
-- whether there is one (found), and the fields that wait to be written (changes).
local PACKED = { ['task:'] = true, ['run:'] = true, ['env:'] = true }
local ABSENT = { __index = function() return false end }
local known_records
on_call(function() known_records = {} end)

local function is_packed(key) return PACKED[string.match(key, '^%a+:', #P + 1)] end

-- packer makes strings of records. A store in memory has no cmsgpack.
local packer
on_call(function()
  if packer then return end -- on a real store only
  local found, library = pcall(function() return cmsgpack end)
  packer = found and library or { pack = cjson.encode, unpack = cjson.decode }
end)

local function know_packed(key, text)
  local k = { packed = true, whole = true, found = text and true,
    fields = setmetatable(text and packer.unpack(text) or {}, ABSENT) }
  known_records[key], touched[key] = k, true
  return k
end

local function known(key)
  local k = known_records[key]
  if k then return k end
  if is_packed(key) then return know_packed(key, redis_call('GET', key)) end
  k = { fields = {} }
  known_records[key], touched[key] = k, true
  return k
end

-- read_packed reads packed records with one command, as far as they are not known.
local function read_packed(keys)
  local unknown = {}
  for _, key in ipairs(keys) do
    if not known_records[key] then unknown[#unknown + 1] = key end
  end
  if #unknown == 0 then return end
  local texts = redis_call('MGET', unpack(unknown))
  for i, key in ipairs(unknown) do know_packed(key, texts[i]) end
end

-- record is the record of a key as this verb sees it: its key at 1, its fields by name. What the verb sets in it is for
-- this verb only, unless it is put. sources has what is known of the record.
local records, sources
on_verb(function() records, sources = {}, {} end)
local function show(key, k)
  local r = setmetatable({ key }, { __index = k.fields })
  records[key], sources[key] = r, k
  return r
end
local function record(key) return records[key] or show(key, known(key)) end

-- new_record is one of which nothing is stored.
local function new_record(key)
  return show(key, { fresh = true, packed = is_packed(key), whole = true, fields = setmetatable({}, ABSENT) })
end

-- pick reads those of the named fields that the record does not know yet. A missing field is false.
-- load reads all fields, at several times the cost, and returns nil when there is no record.
local function pick(key, ...)
  local r = record(key)
  local k, unknown = sources[key], {}
  if k.whole then return r end
  for _, field in ipairs({ ... }) do
    if r[field] == nil then unknown[#unknown + 1] = field end
  end
  if #unknown == 0 then return r end
  for i, value in ipairs(redis_call('HMGET', key, unpack(unknown))) do k.fields[unknown[i]] = value end
  return r
end

local function load(key)
  local r = record(key)
  local k = sources[key]
  if not k.whole then
    local flat = redis_call('HGETALL', key)
    for i = 1, #flat, 2 do
      if k.fields[flat[i]] == nil then k.fields[flat[i]] = flat[i + 1] end
    end
    k.whole, k.found = true, k.found or #flat > 0
    setmetatable(k.fields, ABSENT)
  end
  return k.found and r or nil
end

-- put changes fields of a record in the store. A value that the verb reads again has to be changed
-- in r as well. A refusal writes nothing.
local changed
on_verb(function() changed = {} end)
local function put(r, ...)
  local c = r.changes
  if not c then
    r.changes = { ... }
    changed[#changed + 1] = r
    return
  end
  for i = 1, select('#', ...) do c[#c + 1] = (select(i, ...)) end
end

local function as_text(v) return type(v) == 'number' and F(v) or v end

-- keep_changes makes the changes of a record known to the verbs that follow.
local function keep_changes(r)
  local key, c = r[1], r.changes
  local k = sources[key]
  if k.fresh then
    k.fresh, known_records[key] = nil, k
  elseif known_records[key] ~= k then
    k = known(key)
  end
  local changes = k.changes or {}
  for i = 1, #c, 2 do
    local value = as_text(c[i + 1])
    k.fields[c[i]] = value
    changes[#changes + 1], changes[#changes + 2] = c[i], value
  end
  touched[key], k.found, k.changes, r.changes = true, true, changes, nil
end

local function write_record(key, k)
  if k.packed then
    write('SET', key, packer.pack(k.fields))
  else
    write_values('HSET', key, k.changes)
  end
  k.changes = nil
end

-- write_now writes what waits for a key.
local written_early -- whether events of this verb are written
on_verb(function() written_early = false end)
local function write_now(key)
  local writes, k = staged[key], known_records[key]
  if writes then
    let_wait(key, writes)
    written_early = written_early or writes.kind == 'log'
    for i = 1, #writes do writes[i] = nil end
  end
  local w = waiting[key]
  waiting[key] = nil
  if w then KINDS[w.kind].write(key, w.values) end
  if k and k.changes then write_record(key, k) end
  check_written()
end

-- READS are the commands that leave what is known of a record as it is.
local READS = { HGET = true, HMGET = true, HGETALL = true, EXISTS = true, HEXISTS = true, HLEN = true, PEXPIRE = true }

local function settle(command, key)
  write_now(key)
  if READS[command] then return end
  known_records[key] = nil
  if command == 'DEL' then records[key] = nil end
end

-- call_now runs a command at once. Verbs use it where they need the reply of one that call would let wait.
local function call_now(command, key, ...)
  if touched[key] then settle(command, key) end
  if command == 'DEL' or command == 'EXISTS' then
    for _, other in ipairs({ ... }) do
      if touched[other] then settle(command, other) end
    end
  end
  return redis_call(command, key, ...)
end

-- WAIT are the commands whose replies nobody needs, so that they wait. With flags they do not.
local WAIT = {
  ZADD = function(key, score, member) stage('set', key, member, score) end,
  ZREM = function(key, member) stage('set', key, member, false) end,
  RPUSH = function(key, value) stage('list', key, value) end,
  SET = function(key, value) stage('text', key, value) end,
  PUBLISH = function(key, message) stage('channel', key, message) end,
}
local VALUES = { ZADD = 2, ZREM = 1, RPUSH = 1, SET = 1, PUBLISH = 1 }

-- OF_PACKED are the commands for hashes that read packed records, too.
local OF_PACKED = {
  HGET = function(fields, field) return fields[field] end,
  HMGET = function(fields, ...)
    local out = { ... }
    for i, field in ipairs(out) do out[i] = fields[field] end
    return out
  end,
  HGETALL = function(fields)
    local flat = {}
    for field, value in pairs(fields) do flat[#flat + 1], flat[#flat + 2] = field, value end
    return flat
  end,
}

-- call runs a command of Redis, or lets it wait.
local function call(command, key, ...)
  if VALUES[command] == select('#', ...) then return WAIT[command](key, ...) end
  if command == 'XADD' then return stage('log', key, { ... }) end
  local packed = OF_PACKED[command]
  if packed and is_packed(key) then return packed(known(key).fields, ...) end
  return call_now(command, key, ...)
end

-- save keeps what a verb has changed. It is written when the call ends.
local function save()
  for _, r in ipairs(changed) do keep_changes(r) end
  for _, key in ipairs(staged) do
    if #staged[key] > 0 then let_wait(key, staged[key]) end
  end
  changed, staged = {}, {}
end

-- write_all writes what waits, at the end of a call.
local function write_all()
  local texts = {}
  for key, k in pairs(known_records) do
    if k.changes and k.packed then
      texts[#texts + 1], texts[#texts + 2] = key, packer.pack(k.fields)
    elseif k.changes then
      write_record(key, k)
    end
  end
  for _, key in ipairs(order) do
    local w = waiting[key]
    waiting[key] = nil
    if w and w.kind == 'text' then
      texts[#texts + 1], texts[#texts + 2] = key, w.values
    elseif w then
      KINDS[w.kind].write(key, w.values)
    end
  end
  for i = 1, #texts, STEP do write('MSET', unpack(texts, i, math.min(i + STEP - 1, #texts))) end
  check_written()
end
