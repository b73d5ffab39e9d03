-- publish_policies replaces what the files of the directory have in place of the store, and the standing instructions
-- of the agent names. A refused file leaves the earlier instructions in force.
-- ARGV: holder, number of files that differ from the store, then for each of them: agent name, the file as JSON; then
--   for each file of instructions: agent name, what is known of it as JSON, refused 0|1, text
-- Reply: 1, or 0 if the process does not have the lock
local lock = call('HMGET', K('policy-lock'), 'holder', 'until')
if lock[1] ~= ARGV[1] or num(lock[2]) <= now then return 0 end -- @publishes-with-lock
local after = 3 + 2 * num(ARGV[2])
local texts = {}
for i = after, #ARGV, 4 do
  texts[ARGV[i]] = ARGV[i + 2] == '1' and call('HGET', K('instructions'), ARGV[i]) or ARGV[i + 3] -- @keeps-instructions
end
call('DEL', K('policy-files'), K('instructions'), K('instruction-files'))
for i = 3, after - 1, 2 do call('HSET', K('policy-files'), ARGV[i], ARGV[i + 1]) end
for i = after, #ARGV, 4 do
  call('HSET', K('instruction-files'), ARGV[i], ARGV[i + 1])
  call('HSET', K('instructions'), ARGV[i], texts[ARGV[i]])
end
return 1
