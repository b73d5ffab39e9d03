-- What every verb begins with: when calls and verbs begin, names of keys, numbers, refusals and replies.
-- The code outside of functions runs once, when Redis loads it, and serves the calls of
-- all namespaces. A call runs one verb, or a batch of verbs of one namespace. So whatever
-- belongs to one call or to one verb is set when that begins.
local call_begins, verb_begins, verb_breaks = {}, {}, {}

-- on_call adds a function that runs whenever a call begins, on_verb one that runs before each verb of it, and on_break
-- one that runs after a verb has broken.
local function on_call(f) call_begins[#call_begins + 1] = f end
local function on_break(f) verb_breaks[#verb_breaks + 1] = f end
local function on_verb(f) verb_begins[#verb_begins + 1] = f end

-- forget empties a table.
local function forget(t)
  for k in pairs(t) do t[k] = nil end -- on a real store only
end

-- KEYS[1] is the namespace's meta key; every other key is made from its prefix P,
-- so all keys of a call carry one hash tag.
local redis_call, P, META
local function K(kind, id) return P .. kind .. (id or '') end
-- key_of has the keys that have no id, of the namespace that was called last.
local key_of
-- Integers leave Lua through this, never through "..": 1.7e+15 is not a number.
local function F(n) return string.format('%d', n) end
local function num(s) return tonumber(s or '0') or 0 end

-- FORMAT is the format that this build stores, and the newest that it knows. The verb
-- migrate brings stores of earlier formats to it. A store without a format has format 1.
local FORMAT = 3

local meta -- the record of the namespace: seq, order, granted: the last numbers given out
local now, raw -- store time and the server's own clock, in ms
local NOW, RAW -- the same as they are written
local paused, floor
on_call(function()
  redis_call, P = redis.call, string.sub(KEYS[1], 1, -5)
  if not key_of or key_of.meta ~= KEYS[1] then -- on a real store only
    local function make(keys, kind)
      keys[kind] = P .. kind
      return keys[kind]
    end
    key_of = setmetatable({}, { __index = make })
  end
  META = K('meta')
end)

local function server_clock()
  local t = redis_call('TIME')
  return num(t[1]) * 1000 + math.floor(num(t[2]) / 1000)
end

-- set_time sets both clocks of this call: store time and the server's own.
local function set_time(store, server)
  now, raw = store, server
  NOW, RAW = F(now), F(raw)
end

-- refuse builds the error "code key=value ..."; no value may hold a space. Where one
-- code stands for several situations, it is "code.reason": Go words each reason.
local function refuse(code, ...)
  local out = { code }
  local a = { ... }
  for i = 1, #a, 2 do out[#out + 1] = a[i] .. '=' .. tostring(a[i + 1]) end
  if #out == 1 then out[2] = 'refused=1' end
  return redis.error_reply(table.concat(out, ' '))
end

-- named makes a reply of names and values; the Go side decodes it by name. A value
-- that is nil is left out. A reply that is packed keeps them as a map.
local packs_replies
on_call(function() packs_replies = false end)
local function named(values)
  if packs_replies then return values end -- on a real store only
  local out = {}
  for name, value in pairs(values) do
    out[#out + 1] = name
    out[#out + 1] = value
  end
  return out
end

-- newer_format returns a refusal if a later version has written the store, since
-- this build could misread it. Otherwise it returns nil.
local function newer_format(format)
  if num(format) > FORMAT then return refuse('store_newer', 'format', format, 'known', FORMAT) end -- @known-format
end

-- wrong_format returns a refusal unless all records of a store have the format of this build.
local function wrong_format(format, migrating)
  if num(format) == FORMAT and not migrating then return nil end -- @waits-for-migration
  return newer_format(format) or refuse('store_migrating', 'format', format or 1, 'known', FORMAT)
end

