-- flags: allow-oom
-- needs: push
-- push_list shows the push configurations of a task, or one of them, by the order of their creation.
-- ARGV: task, id of a configuration or '', key of the caller, operator 0|1
-- Reply: list of what pushes.view shows
-- Errors: not_found
local tid, cid = ARGV[1], ARGV[2]
local _, err = pushes.load_task(tid, ARGV[3], ARGV[4])
if err then return err end
local out = {}
for _, id in ipairs(call('ZRANGE', K('pushes:', tid), 0, -1)) do
  if cid == '' or cid == id then out[#out + 1] = pushes.view(tid, id) end
end
if cid ~= '' and #out == 0 then return refuse('not_found', 'kind', 'push') end
return out
