-- What verbs read and write. Verbs call commands as if each was carried out at once. In fact writes to sets, lists,
-- logs and texts wait for the end of the call, which may have many verbs, and each key is then written once. A command
-- that reads a key, or changes it in another way, is preceded by what waits for that key. A verb that breaks is undone,
-- as far as its writes wait.
local call, special, call_now, log_event, ahead, is_known, record, new_record, pick, load, put,
  save, undo, drop_changes, write_all = (function()
  -- waiting has by key the kind at -1; of a set its members with their scores, or false; else the values in order.
  -- order has the keys in the order of their first write.
  local waiting, order
  -- Texts that wait, in the order of text_keys, and those that were read together with records, by key.
  local texts_waiting, text_keys, texts_known
  -- lives has by key the life that a record or a text gets when it is written, in ms.
  local lives
  on_call(function()
    waiting, order, lives = {}, {}, {}
    texts_waiting, text_keys, texts_known = {}, {}, {}
  end)

  -- undo_log says how to take back what a verb lets wait, from its end: what was there before, the table and the key.
  local undo_log, undo_size = {}, 0
  local write_now

  local function wait(key, kind)
    local w = { [-1] = kind }
    waiting[key], order[#order + 1] = w, key
    return w
  end

  local function append(kind, key, value)
    local w, n = waiting[key] or wait(key, kind), undo_size
    local at = #w + 1
    undo_log[n + 1], undo_log[n + 2], undo_log[n + 3] = nil, w, at
    undo_size = n + 3
    w[at] = value
  end

  local function set_member(key, member, score)
    local w, n = waiting[key] or wait(key, 'set'), undo_size
    undo_log[n + 1], undo_log[n + 2], undo_log[n + 3] = w[member], w, member
    undo_size = n + 3
    w[member] = score
  end

  local function set_text(key, text)
    local n, was = undo_size, texts_waiting[key]
    undo_log[n + 1], undo_log[n + 2], undo_log[n + 3] = was, texts_waiting, key
    undo_size = n + 3
    if not was then text_keys[#text_keys + 1] = key end
    texts_waiting[key], texts_known[key] = text, nil
  end

  -- set_life limits the life of what waits to be written for a key, or with nil does not.
  local function set_life(key, ms)
    local n = undo_size
    if lives[key] == ms then return end
    undo_log[n + 1], undo_log[n + 2], undo_log[n + 3] = lives[key], lives, key
    undo_size = n + 3
    lives[key] = ms
  end

  local function undo_waiting() -- on a real store only
    for n = undo_size, 3, -3 do undo_log[n - 1][undo_log[n]] = undo_log[n - 2] end -- on a real store only
    undo_size = 0
  end

  -- A record is a table with its key at 1 and its fields by name. It is a hash, or one of packing.kinds: these are one
  -- string each. records has what this call knows of them, by key. All verbs of the call share them. Of a record,
  --   _kind    is how it is packed, or nil if it is a hash
  --   _others  has of a packed record the fields that few have, of a hash the changes that wait, or false
  --   _changed is the number of the verb that has changed it last
  --   _waits   is true if it waits to be written
  --   _found   says whether there is one
  --   _whole   is true if all fields of a hash are known
  local records
  -- dirty has the records that wait, in the order of their first change.
  local dirty
  on_call(function() records, dirty = {}, {} end)

  -- changed are the records that the verb of the number change has changed. before has what was among records in their
  -- place, or false if it can be read again.
  local change, changed, before, changes = 0, {}, {}, 0

  local ABSENT = { __index = function() return false end }

  local kind_of = packing.kind_of

  local function note_packed(kind, key, text)
    local r = records[key] or packing.unpack_record(kind, key, text)
    records[key] = r
    return r
  end

  -- record is the record of a key.
  local function record(key)
    local r = records[key]
    if r then return r end
    local kind = kind_of(key)
    if kind then return note_packed(kind, key, redis_call('GET', key)) end
    r = { key, _others = false, _changed = 0 }
    records[key] = r
    return r
  end

  -- want notes a record that is packed, or a text, that verbs of this call are going to read, and read_wanted reads all
  -- of them with one command. A record that is known already stays as it is.
  local wanted, wanted_kinds, wanted_size = {}, {}, 0
  local function want(kind, id)
    local n = wanted_size + 1
    wanted[n], wanted_kinds[n] = P .. kind .. (id or ''), packing.kinds[kind] or false
    wanted_size = n
  end

  -- want_score wants the score of a member of a set. scores_known has them by key and member, until the set is written.
  local scores_known, scores_wanted
  on_call(function() scores_known, scores_wanted, wanted_size = {}, nil, 0 end)
  local function want_score(kind, member)
    local w = scores_wanted or {}
    scores_wanted = w
    w.kind, w[#w + 1] = kind, member
  end

  local function read_scores()
    local w, known = scores_wanted, {}
    scores_wanted = nil
    local key = K(w.kind)
    for i, score in ipairs(redis.pcall('ZMSCORE', key, unpack(w))) do known[w[i]] = score end
    scores_known[key] = known
  end

  local function read_wanted()
    if scores_wanted then read_scores() end
    local n = wanted_size
    if n == 0 then return end
    wanted_size = 0
    local got = redis_call('MGET', unpack(wanted, 1, n))
    for i = 1, n do
      if wanted_kinds[i] then
        -- One that is damaged stays unknown. The verb that needs it breaks, and no other.
        pcall(note_packed, wanted_kinds[i], wanted[i], got[i])
      else
        texts_known[wanted[i]] = got[i]
      end
    end
  end
  local ahead = { want = want, want_score = want_score, read = read_wanted }
  local function is_known(key) return records[key] ~= nil end

  -- read_fields reads those of the named fields of a hash that the record does not know.
  local function read_fields(r, names)
    local unknown, waits = {}, r._others
    for _, field in ipairs(names) do
      if r[field] == nil then
        if waits and waits[field] ~= nil then
          r[field] = waits[field]
        else
          unknown[#unknown + 1] = field
        end
      end
    end
    if #unknown == 0 then return end
    for i, value in ipairs(redis_call('HMGET', r[1], unpack(unknown))) do r[unknown[i]] = value end
  end

  -- pick reads those of the named fields that the record does not know yet. A missing field is false.
  -- load reads all fields, at several times the cost, and returns nil when there is no record.
  local function pick(key, ...)
    local r = records[key] or record(key)
    if not r._kind and not r._whole then read_fields(r, { ... }) end
    return r
  end

  local function load(key)
    local r = records[key] or record(key)
    if not r._kind and not r._whole then
      write_now(key)
      local flat = redis_call('HGETALL', key)
      for i = 1, #flat, 2 do
        if r[flat[i]] == nil then r[flat[i]] = flat[i + 1] end
      end
      r._whole, r._found, r._waits = true, #flat > 0, false
      setmetatable(r, ABSENT)
    end
    return r._found and r or nil
  end

  -- follow is for a hash that a command has changed since it was read, so that it is not among records any more. What
  -- the verb changes in it now is written with a record of which nothing else is known.
  local function follow(r)
    write_now(r[1])
    local new = { r[1], _others = {}, _changed = 0 }
    records[r[1]], r._others = new, new._others
    return new
  end

  -- begin_change notes that the verb changes a record. What was changed by a verb before is kept as it is now.
  local function begin_change(r)
    local n, kept = changes + 1, false
    if records[r[1]] ~= r then
      r = follow(r)
    elseif r._waits then
      kept = packing.copy(r)
    end
    changed[n], before[n] = r, kept
    changes = n
    r._changed = change
    if r._waits then return end
    r._waits = true
    if not r._found then r._found = true end
    if not r._kind then r._others = r._others or {} end
    dirty[#dirty + 1] = r
  end

  local NONE = {}

  -- note_others notes changes among the other fields of a record, and all changes of a hash.
  local function note_others(r, others, ...)
    local first, all = r._kind and r._kind.first or NONE, { ... }
    for i = 1, #all, 2 do
      if not first[all[i]] then others[all[i]] = all[i + 1] end
    end
  end

  -- put changes fields of a record, whose values are texts.
  local function put(r, name, value, name2, value2, name3, value3, ...)
    if r._changed ~= change then begin_change(r) end
    local others = r._others
    if others then note_others(r, others, name, value, name2, value2, name3, value3) end
    r[name] = value
    if not name2 then return end
    r[name2] = value2
    if not name3 then return end
    r[name3] = value3
    if ... then put(r, ...) end
  end

  -- new_record makes a record of which nothing is stored, with these fields: of a packed record those that come first.
  local function new_record(key, r)
    local kind, n = kind_of(key), changes + 1
    r[1], r._kind, r._others, r._changed, r._waits = key, kind, not kind and {}, change, true
    if not kind then r._found, r._whole = true, true end
    setmetatable(r, kind and kind.missing or ABSENT)
    changed[n], before[n] = r, records[key] or false
    changes = n
    records[key], dirty[#dirty + 1] = r, r
    return r
  end

  local function write_hash(r)
    local flat, n = {}, 0
    for field, value in pairs(r._others or NONE) do
      flat[n + 1], flat[n + 2] = field, value
      n = n + 2
    end
    write_values('HSET', r[1], flat)
    r._others = false
  end

  -- keep_writes lets what the verb has written so far stay, even if the verb breaks. kept_seq is the number of the last
  -- event that stays.
  local kept_seq
  local function keep_writes() undo_size, kept_seq = 0, meta and meta.seq end

  local function limit_life(key)
    local ms = lives[key]
    lives[key] = nil
    if ms then write('PEXPIRE', key, ms) end
  end

  local function write_text(key, text)
    if lives[key] then
      write('SET', key, text, 'PX', lives[key])
      lives[key] = nil
    else
      write('SET', key, text)
    end
  end

  -- write_now writes what waits for a key. What a verb has written to a log then stays, and so does all before it.
  write_now = function(key)
    local w, r, text = waiting[key], records[key], texts_waiting[key]
    if w then
      waiting[key] = nil
      if w[-1] == 'log' or w[-1] == 'events' then keep_writes() end
      KINDS[w[-1]](key, w)
    end
    if text then
      texts_waiting[key] = nil
      write_text(key, text)
    end
    if r and r._waits then
      -- What the verb has changed in it stays, and so does what it was before that.
      for n = 1, r._changed == change and changes or 0 do
        if changed[n] == r then before[n] = false end
      end
      r._waits, r._changed = false, 0
      if r._kind then
        write('SET', key, r._kind.pack(r))
      else
        write_hash(r)
      end
      limit_life(key)
    end
    check_written()
  end

  -- READS are the commands that leave what is known of a record as it is.
  local READS = { HGET = true, HMGET = true, HGETALL = true, EXISTS = true, HEXISTS = true, HLEN = true,
    PEXPIRE = true }

  -- settle comes before a command that does not wait.
  local function settle(command, key)
    local known = records[key] or texts_known[key] ~= nil or scores_known[key]
    if not (waiting[key] or texts_waiting[key] or known) then return end
    write_now(key)
    scores_known[key] = nil
    if not READS[command] then records[key], texts_known[key] = nil, nil end
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

  -- log_event writes an event into the log. Its number is that of the last event.
  local function log_event(text) append('events', K('events'), text) end

  -- special has the commands that are not just run. Those for sets, lists and texts wait if they have one value and no
  -- option but PX. Those for hashes read packed records, too.
  local special
  local EXACT = 2 ^ 53
  special = {
    ZADD = function(key, score, member, ...)
      if ... then return call_now('ZADD', key, score, member, ...) end
      set_member(key, member, score)
    end,
    ZREM = function(key, member, ...)
      if ... then return call_now('ZREM', key, member, ...) end
      set_member(key, member, false)
    end,
    RPUSH = function(key, value, ...)
      if ... then return call_now('RPUSH', key, value, ...) end
      append('list', key, value)
    end,
    SET = function(key, value, ...)
      local option, ms = ...
      if option and option ~= 'PX' then return call_now('SET', key, value, ...) end
      set_text(key, value)
      set_life(key, ms)
    end,
    -- What waits for other members of a set does not change the score of this one.
    ZSCORE = function(key, member)
      local w, known = waiting[key], scores_known[key]
      local score = w and w[member]
      if score == nil and known then score = known[member] end
      if score == nil then score = redis_call('ZSCORE', key, member) end
      return score
    end,
    -- A record that waits to be written gets its life after that.
    PEXPIRE = function(key, ms)
      local r = records[key]
      if not r or not r._waits then return call_now('PEXPIRE', key, ms) end
      set_life(key, ms)
    end,
    PUBLISH = function(key, message) append('channel', key, message) end,
    XADD = function(key, ...) append('log', key, { ... }) end,
    GET = function(key)
      local text = texts_waiting[key] or texts_known[key]
      if text ~= nil then return text end
      return call_now('GET', key)
    end,
    HGET = function(key, field)
      local r = record(key)
      if not r._kind and not r._whole and r[field] == nil then read_fields(r, { field }) end
      return r[field] or false
    end,
    HSTRLEN = function(key, field)
      local r = record(key)
      if r[field] == nil and not r._whole then return redis_call('HSTRLEN', key, field) end
      return #(r[field] or '')
    end,
    HMGET = function(key, ...)
      local r, names = record(key), { ... }
      if not r._kind and not r._whole then read_fields(r, names) end
      for i, field in ipairs(names) do names[i] = r[field] or false end
      return names
    end,
    HGETALL = function(key)
      if not kind_of(key) then return call_now('HGETALL', key) end
      local r, flat = record(key), {}
      for field in pairs(r._kind.first) do
        if r[field] then flat[#flat + 1], flat[#flat + 2] = field, r[field] end
      end
      for field, value in pairs(r._others or NONE) do flat[#flat + 1], flat[#flat + 2] = field, value end
      return flat
    end,
    -- A change of a hash waits with its record. HSET has no reply then.
    HSET = function(key, name, value, ...)
      assert(type(value) == 'string', 'HSET needs texts')
      put(record(key), name, value)
      if ... then return special.HSET(key, ...) end
    end,
    HINCRBY = function(key, name, by)
      local was = num(special.HGET(key, name))
      local n = was + num(by)
      -- From 2^53 on, Lua's numbers are not exact, so Redis adds at once.
      if math.max(math.abs(was), math.abs(n)) >= EXACT and not kind_of(key) then
        return call_now('HINCRBY', key, name, by)
      end
      put(record(key), name, F(n))
      return n
    end,
    DEL = function(...) return call_for_keys('DEL', ...) end,
    EXISTS = function(...) return call_for_keys('EXISTS', ...) end,
  }

  -- call runs a command at once. compose.go makes special.ZADD(...) of call('ZADD', ...), as of all that special has.
  local function call(command, key, ...)
    settle(command, key)
    return redis_call(command, key, ...)
  end

  -- save keeps what a verb has changed. It is written when the call ends.
  local function save()
    change, changes, undo_size = change + 1, 0, 0
    kept_seq = meta and meta.seq
  end

  -- drop_changes takes back what a verb has changed in records.
  local function drop_changes()
    for n = changes, 1, -1 do -- on a real store only
      local was = before[n] or nil
      records[changed[n][1]], dirty[#dirty + 1] = was, was
    end
    -- Whatever else the verb has set in a record is for nobody.
    for key, r in pairs(records) do
      if not r._waits then records[key] = nil end
    end
    change, changes, undo_size = change + 1, 0, 0
  end

  -- undo takes back what waits of a verb that has broken, and the numbers of its events.
  local function undo() -- on a real store only
    undo_waiting() -- on a real store only
    drop_changes() -- on a real store only
    local m = meta or {} -- on a real store only
    m.seq = kept_seq -- on a real store only
  end

  -- write_all writes what waits, at the end of a call.
  local function write_all()
    local values, n = {}, 0
    for i = 1, #dirty do
      local r = dirty[i]
      local kind, waits = r._kind, r._waits and records[r[1]] == r
      r._waits = false
      if waits and kind then
        values[n + 1], values[n + 2] = r[1], kind.pack(r)
        n = n + 2
      elseif waits then
        write_hash(r)
        limit_life(r[1])
      end
    end
    for i = 1, #text_keys do
      local key = text_keys[i]
      local text = not lives[key] and texts_waiting[key]
      if text then
        texts_waiting[key] = nil -- a key can be there twice, if a verb was undone
        values[n + 1], values[n + 2] = key, text
        n = n + 2
      end
    end
    local stored = write_texts(values)
    for i = 1, #order do
      local key = order[i]
      local w = waiting[key]
      waiting[key] = nil
      if w then KINDS[w[-1]](key, w) end
    end
    -- Texts with a life are mostly what makes a request known. A repeat must not get the answer of what was not stored.
    for i = 1, stored and #text_keys or 0 do
      local text = texts_waiting[text_keys[i]]
      texts_waiting[text_keys[i]] = nil
      if text then write_text(text_keys[i], text) end
    end
  end
  return call, special, call_now, log_event, ahead, is_known, record, new_record, pick, load, put,
    save, undo, drop_changes, write_all
end)()
