-- The writes of a progress report by somebody who has no fence: the same keys,
-- values and event as Picket's report, without asking whether the lease still
-- holds, without store time and without a record of the request.
-- KEYS: task, list of reports, meta, events. ARGV: task, run, token, report JSON, channel, the places of the number of
-- reports and of the last change among the values of the record of the task
local t = redis.call('TIME')
local raw = string.format('%.0f', tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000))
local task, reports, updated = { cmsgpack.unpack(redis.call('GET', KEYS[1])) }, tonumber(ARGV[6]), tonumber(ARGV[7])
local seq = string.format('%.0f', tonumber(task[reports] or '0') + 1)
task[reports], task[updated] = seq, raw
redis.call('SET', KEYS[1], cmsgpack.pack(unpack(task)))
redis.call('RPUSH', KEYS[2], seq .. ' ' .. raw .. ' ' .. ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[4])
redis.call('LTRIM', KEYS[2], -1000, -1)
local event = string.format('%.0f', redis.call('HINCRBY', KEYS[3], 'seq', 1))
local values = { event, 'task.progress', raw, raw, ARGV[2], '{"state":"leased","seq":' .. seq .. '}', ARGV[1], ARGV[2],
  '', ARGV[3], '', '' }
for i, v in ipairs(values) do values[i] = #v .. ':' .. v end
redis.call('XADD', KEYS[4], event .. '-0', '1', table.concat(values))
redis.call('PUBLISH', ARGV[5], event)
return tonumber(seq)
