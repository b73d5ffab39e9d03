-- flags: allow-oom
-- needs: review_digest review_queue
-- reviews lists a page of the tasks that wait for a decision, oldest first, as
-- many as fit into one reply.
-- alone
-- ARGV: limit, order of the task looked at before or '', then names of sets
--   that the tasks have to be in (by-role:..., by-label:..., children:...)
-- Reply: total (number that wait), next (cursor), rows: id, record, spec, output, ended (ms, of the run), workspace,
--   work, envelope, digest
local limit, last, size = num(ARGV[1]), ARGV[2], 0
local sets, source = filter_sets(3)
local rows = {}
local function page(next_cursor) return named{ total = call('ZCARD', sets[1]), next = next_cursor, rows = rows } end
local function add(tid)
  local rid = call('HGET', K('task:', tid), 'run')
  local run = call('HMGET', K('run:', rid), 'ended', 'workspace')
  size = size + call('STRLEN', K('out:', tid)) + call('STRLEN', K('spec:', tid)) + call('STRLEN', K('work:', rid))
  rows[#rows + 1] = named{
    id = tid, record = call('HGETALL', K('task:', tid)), spec = call('GET', K('spec:', tid)),
    output = call('GET', K('out:', tid)), ended = run[1], workspace = run[2], work = call('GET', K('work:', rid)),
    envelope = call('HGETALL', K('env:', tid)), digest = (review_digest({ run = rid })) }
end

local batch = #sets > 1 and LOOKS or limit + 1
local got = read_after(source, last, batch)
for i = 1, #got, 2 do
  if #rows == limit or size > MAX_REPLY then return page(last) end
  last = F(num(got[i + 1]))
  if in_all_sets(sets, source, got[i]) then add(got[i]) end
end
return page(#got == 2 * batch and last or nil)
