-- What verbs read and write. Verbs call commands as if each was carried out at once. In fact writes to sets, lists,
-- logs and texts wait for the end of the call, which may have many verbs, and each key is then written once. A command
-- that reads a key, or changes it in another way, is preceded by what waits for that key. A verb that breaks is undone,
-- as far as its writes wait.
local call, call_now, log_event, read_together, record, new_record, pick, load, put, save, undo, write_all, is_packed,
  pack_record = (function()
  -- waiting has by key the kind at -1; of a set its members with their scores, or false; else the values in their order.
  local waiting
  local order -- the keys in the order of their first write
  on_call(function() waiting, order = {}, {} end)

  -- undo_log has a table, a key of it and what was there before for each change that a verb has made to what waits.
  local undo_log, undo_size = {}, 0
  on_verb(function() undo_log, undo_size = undo_size > 300 and {} or undo_log, 0 end)
  local function let_wait(w, at, value)
    local n = undo_size
    undo_log[n + 1], undo_log[n + 2], undo_log[n + 3] = w, at, w[at]
    undo_size = n + 3
    w[at] = value
  end

  -- write runs a command that nobody waits for. If it fails, which only a damaged store causes, the other writes are
  -- made all the same, and then the call breaks.
  local redis_pcall, failed
  on_call(function() redis_pcall, failed = redis.pcall, nil end)
  local function write(...)
    local reply = redis_pcall(...)
    failed = failed or type(reply) == 'table' and reply.err
  end
  local function check_written() assert(not failed, failed) end

  -- STEP is how many values one command gets at most.
  local STEP = 4000
  local function write_values(command, key, values)
    for i = 1, #values, STEP do write(command, key, unpack(values, i, math.min(i + STEP - 1, #values))) end
  end

  -- KINDS write what waits for a key, which is nothing if the verb was undone.
  local KINDS = {
    set = function(key, members)
      local added, removed, n, m = {}, {}, 0, 0
      members[-1] = nil -- the kind
      for member, score in pairs(members) do
        if score then
          added[n + 1], added[n + 2] = score, member
          n = n + 2
        else
          m = m + 1
          removed[m] = member
        end
      end
      write_values('ZADD', key, added)
      write_values('ZREM', key, removed)
    end,
    list = function(key, values) write_values('RPUSH', key, values) end,
    log = function(key, entries)
      for _, entry in ipairs(entries) do write('XADD', key, unpack(entry)) end
    end,
    -- The id of an entry is the number of its last event, and its fields are the events: 1, 2, and so on.
    events = function(key, all)
      local MOST = 500
      for from = 1, #all, MOST do
        local fields, last = {}, math.min(from + MOST - 1, #all)
        for i = from, last do
          fields[#fields + 1] = F(i - from + 1)
          fields[#fields + 1] = all[i].text
        end
        write('XADD', key, all[last].seq .. '-0', unpack(fields))
      end
    end,
    text = function(key, values)
      for _, last in ipairs({ values[#values] }) do write('SET', key, last) end
    end,
    channel = function(key, messages)
      for _ = 1, math.min(1, #messages) do write('PUBLISH', key, table.concat(messages, '\n')) end
    end,
  }

  local function wait(key, kind)
    local w = { [-1] = kind }
    waiting[key], order[#order + 1] = w, key
    return w
  end

  -- A record is a hash, or one of PACKED: these are one string each, since every task has them. records_known has what
  -- this call knows of records, by key: their fields, where a field that is false is missing; whether it knows all
  -- (whole), whether there is one (found), and the fields that wait to be written (changes).
  local PACKED = { ['task:'] = true, ['run:'] = true, ['env:'] = true }
  local ABSENT = { __index = function() return false end }
  local records_known
  local texts_known -- by key: those that were read together with records
  on_call(function() records_known, texts_known = {}, {} end)

  local function is_packed(key) return PACKED[string.match(key, '^%a+:', #P + 1)] end

  -- packer makes strings of records. A store in memory has no cmsgpack.
  local packer
  on_call(function()
    if packer then return end -- on a real store only
    local found, library = pcall(function() return cmsgpack end)
    packer = found and library or { pack = cjson.encode, unpack = cjson.decode }
  end)

  local function pack_record(fields) return packer.pack(fields) end

  local function note_known(key, k)
    k.view = { __index = k.fields }
    records_known[key] = k
    return k
  end

  local function note_packed(key, text)
    return note_known(key, { packed = true, whole = true, found = text,
      fields = setmetatable(text and packer.unpack(text) or {}, ABSENT) })
  end

  local function known(key)
    local k = records_known[key]
    if k then return k end
    if is_packed(key) then return note_packed(key, redis_call('GET', key)) end
    return note_known(key, { fields = {} })
  end

  -- read_together reads packed records, as far as they are not known, and texts with one command. It returns the texts.
  local function read_together(packed, texts)
    local keys, n, out = {}, 0, {}
    for _, key in ipairs(packed) do
      if not records_known[key] then
        n = n + 1
        keys[n] = key
      end
    end
    local records_read = n
    for i, key in ipairs(texts or out) do
      local w = waiting[key]
      out[i] = w and w[#w]
      if not out[i] then -- on a real store only
        n = n + 1
        keys[n] = key
        out[i] = n
      end
    end
    local got = n > 0 and redis_call('MGET', unpack(keys))
    for i = 1, records_read do note_packed(keys[i], got[i]) end
    for i, at in ipairs(out) do
      if type(at) == 'number' then -- on a real store only
        out[i] = got[at]
        texts_known[keys[at]] = got[at]
      end
    end
    return out
  end

  -- record is the record of a key as this verb sees it: its key at 1, its fields by name. What the verb sets in it is
  -- for this verb only, unless it is put. sources has what is known of the record.
  local records, sources
  on_verb(function() records, sources = {}, {} end)
  local function show(key, k)
    local r = setmetatable({ key }, k.view)
    records[key], sources[key] = r, k
    return r
  end
  local function record(key) return records[key] or show(key, known(key)) end

  -- read_fields reads those of the named fields of a hash that seen does not have.
  local function read_fields(key, k, names, seen)
    local unknown = {}
    for _, field in ipairs(names) do
      if seen[field] == nil then unknown[#unknown + 1] = field end
    end
    if #unknown == 0 then return end
    for i, value in ipairs(redis_call('HMGET', key, unpack(unknown))) do k.fields[unknown[i]] = value end
  end

  -- pick reads those of the named fields that the record does not know yet. A missing field is false.
  -- load reads all fields, at several times the cost, and returns nil when there is no record.
  local function pick(key, ...)
    local r = records[key] or show(key, known(key))
    local k = sources[key]
    if not k.whole then read_fields(key, k, { ... }, r) end
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

  -- put changes fields of a record in the store; their values are texts. A value that the verb reads again has to be
  -- changed in r as well. A refusal writes nothing.
  local changed, changes_of
  on_verb(function() changed, changes_of = {}, {} end)
  local function put(r, ...)
    local c, all = changes_of[r], { ... }
    if not c then
      c = {}
      changes_of[r], changed[#changed + 1] = c, r
    end
    for i = 1, #all, 2 do c[all[i]] = all[i + 1] end
  end

  -- new_record makes a record of which nothing is stored. It is stored with these fields, unless there are none.
  local function new_record(key, fields)
    local k = { fresh = true, packed = is_packed(key), whole = true, fields = setmetatable(fields or {}, ABSENT) }
    k.view = { __index = k.fields }
    local r = show(key, k)
    if fields then changes_of[r], changed[#changed + 1] = k.fields, r end
    return r
  end

  -- keep_changes makes the changes of a record known to the verbs that follow.
  local function keep_changes(r)
    local key, c = r[1], changes_of[r]
    local k = sources[key]
    if k.fresh then
      k.fresh, records_known[key] = nil, k
    elseif records_known[key] ~= k then
      k = known(key)
    end
    local fields, waits = k.fields, k.changes or {}
    if c ~= fields then
      for field, value in pairs(c) do fields[field] = value end
    end
    if not k.packed then
      for field, value in pairs(c) do waits[field] = value end
    end
    k.found, k.changes = true, waits
  end

  local function write_record(key, k)
    if k.packed then
      write('SET', key, pack_record(k.fields))
    else
      local flat = {}
      for field, value in pairs(k.changes) do flat[#flat + 1], flat[#flat + 2] = field, value end
      write_values('HSET', key, flat)
    end
    k.changes = nil
  end

  -- keep_writes lets what the verb has written so far stay, even if the verb breaks. kept_seq is the number of the last
  -- event that stays.
  local kept_seq
  on_verb(function() kept_seq = meta and meta.seq end)
  local function keep_writes() undo_size, kept_seq = 0, meta and meta.seq end

  -- write_now writes what waits for a key. What a verb has written to a log then stays, and so does all before it.
  local function write_now(key)
    local w, k = waiting[key], records_known[key]
    if w then
      waiting[key] = nil
      if w[-1] == 'log' or w[-1] == 'events' then keep_writes() end
      KINDS[w[-1]](key, w)
    end
    if k and k.changes then write_record(key, k) end
    check_written()
  end

  -- READS are the commands that leave what is known of a record as it is.
  local READS = { HGET = true, HMGET = true, HGETALL = true, EXISTS = true, HEXISTS = true, HLEN = true, PEXPIRE = true }

  -- settle comes before a command that does not wait.
  local function settle(command, key)
    if not (waiting[key] or records_known[key] or texts_known[key]) then return end
    write_now(key)
    if READS[command] then return end
    records_known[key], texts_known[key] = nil, nil
    local k = command == 'DEL' and sources[key]
    if k then k.whole, k.found = false, false end
  end

  -- call_now runs a command at once. Verbs use it where they need the reply of one that call would let wait.
  local function call_now(command, key, ...)
    settle(command, key)
    return redis_call(command, key, ...)
  end

  local function call_for_keys(command, ...)
    for _, key in ipairs({ ... }) do
      settle(command, key)
    end
    return redis_call(command, ...)
  end

  local function append(kind, key, value)
    local w = waiting[key] or wait(key, kind)
    let_wait(w, #w + 1, value)
  end

  -- log_event writes an event into the log, as the entry has it, under its number.
  local function log_event(seq, text) append('events', K('events'), { seq = seq, text = text }) end

  -- SPECIAL are the commands that are not just run. Those for sets, lists and texts wait if they have one value and no
  -- option. Those for hashes read packed records, too.
  local SPECIAL = {
    ZADD = function(key, score, member, ...)
      if ... then return call_now('ZADD', key, score, member, ...) end
      let_wait(waiting[key] or wait(key, 'set'), member, score)
    end,
    ZREM = function(key, member, ...)
      if ... then return call_now('ZREM', key, member, ...) end
      let_wait(waiting[key] or wait(key, 'set'), member, false)
    end,
    RPUSH = function(key, value, ...)
      if ... then return call_now('RPUSH', key, value, ...) end
      append('list', key, value)
    end,
    SET = function(key, value, ...)
      if ... then return call_now('SET', key, value, ...) end
      texts_known[key] = nil
      append('text', key, value)
    end,
    PUBLISH = function(key, message) append('channel', key, message) end,
    XADD = function(key, ...) append('log', key, { ... }) end,
    GET = function(key)
      local w = waiting[key]
      local text = w and w[#w] or texts_known[key]
      if text ~= nil then return text end
      return call_now('GET', key)
    end,
    HGET = function(key, field)
      local k = known(key)
      if k.fields[field] == nil then k.fields[field] = redis_call('HGET', key, field) end
      return k.fields[field]
    end,
    HMGET = function(key, ...)
      local k, names = known(key), { ... }
      if not k.whole then read_fields(key, k, names, k.fields) end
      for i, field in ipairs(names) do names[i] = k.fields[field] end
      return names
    end,
    HGETALL = function(key)
      if not is_packed(key) then return call_now('HGETALL', key) end
      local flat = {}
      for field, value in pairs(known(key).fields) do flat[#flat + 1], flat[#flat + 2] = field, value end
      return flat
    end,
    DEL = function(...) return call_for_keys('DEL', ...) end,
    EXISTS = function(...) return call_for_keys('EXISTS', ...) end,
  }

  -- call runs a command of Redis, or lets it wait.
  local function call(command, key, ...)
    local special = SPECIAL[command]
    if special then return special(key, ...) end
    settle(command, key)
    return redis_call(command, key, ...)
  end

  -- save keeps what a verb has changed. It is written when the call ends.
  local function save()
    for _, r in ipairs(changed) do keep_changes(r) end
    changed, changes_of = {}, {}
    keep_writes()
  end

  -- undo takes back what waits of a verb that has broken, and the numbers of its events.
  local function undo() -- on a real store only
    for n = undo_size, 3, -3 do undo_log[n - 2][undo_log[n - 1]] = undo_log[n] end -- on a real store only
    (meta or {}).seq = kept_seq
  end

  -- write_all writes what waits, at the end of a call.
  local function write_all()
    local texts, n = {}, 0
    for key, k in pairs(records_known) do
      if k.changes and k.packed then
        texts[n + 1], texts[n + 2] = key, pack_record(k.fields)
        n = n + 2
      elseif k.changes then
        write_record(key, k)
      end
    end
    for _, key in ipairs(order) do
      local w = waiting[key]
      waiting[key] = nil
      if w and w[-1] == 'text' then
        texts[n + 1], texts[n + 2] = key, w[#w]
        n = n + (w[#w] and 2 or 0)
      elseif w then
        KINDS[w[-1]](key, w)
      end
    end
    for i = 1, n, STEP do write('MSET', unpack(texts, i, math.min(i + STEP - 1, n))) end
    check_written()
  end
  return call, call_now, log_event, read_together, record, new_record, pick, load, put, save, undo, write_all, is_packed,
    pack_record
end)()
