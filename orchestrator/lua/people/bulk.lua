-- bulk notes which tasks a request decides, so that its repeat means the same
-- ones, however many of them were decided meanwhile.
-- alone
-- ARGV: request key, body hash, how many the person saw, task...
-- Reply: task, task... in one text
-- Errors: version_conflict (another number), idempotency_conflict
local was, err = find_request(ARGV[1], ARGV[2])
if err then return err end
if was then return was end
local n = #ARGV - 3
if n ~= num(ARGV[3]) then return refuse('version_conflict', 'count', F(n), 'presented', ARGV[3]) end
local tasks = table.concat(ARGV, ' ', 4)
remember(ARGV[1], ARGV[2], tasks, DAY)
return tasks
