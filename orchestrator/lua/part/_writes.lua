-- How what waits in a call is written to Redis.
local write, try_write, write_values, write_texts, check_written, partly_written, KINDS = (function()
  -- write runs a command that nobody waits for, and reports whether Redis has carried it out. Redis refuses one only if
  -- the store is damaged or a right is missing. The other writes are then made all the same, and the outcome of the
  -- call is unknown.
  local redis_pcall, failed
  on_call(function() redis_pcall, failed = redis.pcall, nil end)
  local function write(...)
    local reply = redis_pcall(...)
    local no = type(reply) == 'table' and reply.err
    failed = failed or no
    return not no
  end

  -- try_write runs a function that writes. An error of it is like a refused write.
  local function try_write(f)
    local ok, said = pcall(f)
    if not ok then failed = failed or tostring(said) end
  end

  -- If Redis has refused a write, check_written breaks the verb, and partly_written returns the refusal of the call.
  local function check_written() assert(not failed, failed) end
  local function partly_written() return failed and redis.error_reply('partly_written ' .. failed) end

  -- STEP is how many values one command gets at most.
  local STEP = 1000
  local function write_values(command, key, values)
    for i = 1, #values, STEP do write(command, key, unpack(values, i, math.min(i + STEP - 1, #values))) end
  end

  -- write_texts writes keys and their texts, and reports whether all were written.
  local function write_texts(values)
    local all = true
    for i = 1, #values, STEP do
      all = write('MSET', unpack(values, i, math.min(i + STEP - 1, #values))) and all
    end
    return all
  end

  -- KINDS has for each kind of write what writes all that waits for a key. After an undo that can be nothing.
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
        for i = from, last do fields[2 * (i - from) + 1], fields[2 * (i - from) + 2] = F(i - from + 1), all[i] end
        write('XADD', key, F(num(meta.seq) - #all + last) .. '-0', unpack(fields))
      end
    end,
    channel = function(key, messages)
      for _ = 1, math.min(1, #messages) do write('PUBLISH', key, table.concat(messages, '\n')) end
    end,
  }
  return write, try_write, write_values, write_texts, check_written, partly_written, KINDS
end)()
