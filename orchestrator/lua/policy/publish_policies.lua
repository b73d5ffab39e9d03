-- publish_policies replaces what the files of the directory have in place of the store.
-- ARGV: holder, then for each file: agent name, the file as JSON
-- Reply: 1, or 0 if the process does not have the lock
local lock = call('HMGET', K('policy-lock'), 'holder', 'until')
if lock[1] ~= ARGV[1] or num(lock[2]) <= now then return 0 end -- @publishes-with-lock
call('DEL', K('policy-files'))
for i = 2, #ARGV, 2 do call('HSET', K('policy-files'), ARGV[i], ARGV[i + 1]) end
return 1
