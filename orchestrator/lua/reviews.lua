-- flags: allow-oom
-- reviews lists a page of the tasks that wait for a decision, oldest first, as
-- many as fit into one reply. A page looks at 2,000 tasks at most.
-- ARGV: limit, order of the task looked at before or '', then names of sets
--   that the tasks have to be in (by-role:..., by-label:..., children:...)
-- Reply: {number that wait, next cursor or '', row...}, row = {task, task hash,
--   spec, output, ended ms of the run, workspace, work, envelope}
local LOOKS = 2000
local limit, last = num(ARGV[1]), ARGV[2]
local sets = { K('by-state:', 'review') }
for i = 3, #ARGV do sets[#sets + 1] = K(ARGV[i]) end
local out, size = { call('ZCARD', sets[1]), '' }, 0

-- The walk goes over the smallest set; the others are asked.
local source, fewest = sets[1], out[1]
for i = 2, #sets do
  local n = call('ZCARD', sets[i])
  if n < fewest then source, fewest = sets[i], n end
end
local function meant(tid)
  for _, key in ipairs(sets) do
    if key ~= source and not call('ZSCORE', key, tid) then return false end
  end
  return true
end

local function add(tid)
  local rid = call('HGET', K('task:', tid), 'run')
  local run = call('HMGET', K('run:', rid), 'ended', 'workspace')
  size = size + call('STRLEN', K('out:', tid)) + call('STRLEN', K('spec:', tid)) + call('STRLEN', K('work:', rid))
  out[#out + 1] = { tid, call('HGETALL', K('task:', tid)), call('GET', K('spec:', tid)), call('GET', K('out:', tid)),
    run[1], run[2], call('GET', K('work:', rid)), call('HGETALL', K('env:', tid)) }
end

local batch = #sets > 1 and LOOKS or limit + 1
local got = call('ZRANGEBYSCORE', source, last == '' and '-inf' or '(' .. last, '+inf', 'WITHSCORES', 'LIMIT', 0, batch)
for i = 1, #got, 2 do
  if #out - 2 == limit or size > MAX_REPLY then
    out[2] = last
    return out
  end
  last = F(num(got[i + 1]))
  if meant(got[i]) then add(got[i]) end
end
if #got == 2 * batch then out[2] = last end
return out
