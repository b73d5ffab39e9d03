-- flags: allow-oom
-- needs: review_queue
-- review_ids names tasks that wait for a decision: those of a list that do, or a
-- page of the queue, oldest first.
-- alone
-- ARGV: order of the task looked at before or '', number of tasks asked about,
--   tasks..., then names of sets that the tasks have to be in
-- Reply: next (cursor), tasks
local last, asked = ARGV[1], num(ARGV[2])
local sets, source = filter_sets(3 + asked)
local out = {}
for i = 3, 2 + asked do
  if in_all_sets(sets, '', ARGV[i]) then out[#out + 1] = ARGV[i] end
end
if asked > 0 then return named{ tasks = out } end
local got = read_after(source, last, LOOKS)
for i = 1, #got, 2 do
  if in_all_sets(sets, source, got[i]) then out[#out + 1] = got[i] end
end
return named{ tasks = out, next = #got == 2 * LOOKS and F(num(got[#got])) }
