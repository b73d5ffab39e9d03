-- flags: allow-oom
-- needs: review_digest review_queue
-- reviews lists a page of the tasks that wait for a decision, oldest first, as
-- many as fit into one reply.
-- ARGV: limit, order of the task looked at before or '', then names of sets
--   that the tasks have to be in (by-role:..., by-label:..., children:...)
-- Reply: {number that wait, next cursor or '', row...}, row = {task, task hash,
--   spec, output, ended ms of the run, workspace, work, envelope, digest}
local limit, last, size = num(ARGV[1]), ARGV[2], 0
local sets, source = filter_sets(3)
local out = { call('ZCARD', sets[1]), '' }
local function add(tid)
  local rid = call('HGET', K('task:', tid), 'run')
  local run = call('HMGET', K('run:', rid), 'ended', 'workspace')
  size = size + call('STRLEN', K('out:', tid)) + call('STRLEN', K('spec:', tid)) + call('STRLEN', K('work:', rid))
  out[#out + 1] = { tid, call('HGETALL', K('task:', tid)), call('GET', K('spec:', tid)), call('GET', K('out:', tid)),
    run[1], run[2], call('GET', K('work:', rid)), call('HGETALL', K('env:', tid)),
    (review_digest({ run = rid })) }
end

local batch = #sets > 1 and LOOKS or limit + 1
local got = read_after(source, last, batch)
for i = 1, #got, 2 do
  if #out - 2 == limit or size > MAX_REPLY then
    out[2] = last
    return out
  end
  last = F(num(got[i + 1]))
  if in_all_sets(sets, source, got[i]) then add(got[i]) end
end
if #got == 2 * batch then out[2] = last end
return out
