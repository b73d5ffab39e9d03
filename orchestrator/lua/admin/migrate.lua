-- flags: allow-oom
-- clockless
-- migrate brings a store of an earlier format to this one. In format 1, the records of tasks, runs and envelopes are
-- hashes; now each is a string. The strings of format 2 name all fields. Every verb can read them and writes them in
-- the new form when they change, so for format 2 a step only stores the new format. Otherwise a step looks at some
-- keys of the store. The first one stores the new format, so that servers of earlier versions stop, and each stores how
-- far it has come: the position, how many records and tasks are converted, and the server. Every other verb is refused
-- until the last step, so store time stands still. A step that is repeated finds nothing to do.
-- ARGV: about how many keys to look at, how many records to convert at most
-- Reply: records, tasks (how many are converted), done (1 if all are, else 0)
-- Errors: store_newer
local MAX_BYTES = 1048576 -- of the records of one step, without the last one
local m = redis_call('HMGET', META, 'format', 'migrating', 'store')
local newer = newer_format(m[1])
if newer then return newer end
if not m[3] or num(m[1]) == FORMAT and not m[2] then return named{ records = 0, tasks = 0, done = 1 } end
if m[1] == '2' and not m[2] then -- @keeps-strings
  redis_call('HSET', META, 'format', F(FORMAT))
  return named{ records = 0, tasks = 0, done = 1 }
end
local cursor, records, tasks, at = string.match(m[2] or '', '^(%d+) (%d+) (%d+) (.+)$')
local here = identity()
records, tasks = num(records), num(tasks)
-- Each process orders its keys in another way, so a position is good for the process that gave it.
if at ~= here then cursor = '0' end -- @scans-again
local got = redis_call('SCAN', cursor, 'MATCH', P .. '*', 'COUNT', ARGV[1], 'TYPE', 'hash')
local room, bytes, seen, left = num(ARGV[2]), 0, {}, false
for _, key in ipairs(got[2]) do
  if packing.kind_of(key) and not seen[key] then
    left = left or room == 0 or bytes > MAX_BYTES
    if left then break end
    local flat, fields = redis_call('HGETALL', key), {}
    for i = 1, #flat, 2 do
      fields[flat[i]] = flat[i + 1]
      bytes = bytes + #flat[i] + #flat[i + 1]
    end
    redis_call('SET', key, packing.pack_fields(key, fields), 'KEEPTTL')
    seen[key], room, records = true, room - 1, records + 1
    if string.sub(key, #P + 1, #P + 5) == 'task:' then tasks = tasks + 1 end
  end
end
if not left then cursor = got[1] end
local done = cursor == '0' and not left -- @looks-again
redis_call('HSET', META, 'format', F(FORMAT), 'migrating', table.concat({ cursor, F(records), F(tasks), here }, ' '))
if done then redis_call('HDEL', META, 'migrating') end -- @ends-migration
return named{ records = records, tasks = tasks, done = done and 1 or 0 }
