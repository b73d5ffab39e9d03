-- flags: allow-oom
-- mark_stop takes the store out of service and names the stop by a mark. It is on
-- no server now, so every call is refused until the store is adopted or the mark is
-- taken: no grant can follow. An adoption overwrites the mark.
-- A process that knows of more grants than there are has an older state before it, which was put
-- back into the living server. It is not marked.
-- alone
-- ARGV: store id, floor, mark, number of grants that the caller knows of
-- Reply: OK
-- Errors: adopt_lost (another process has adopted the store, or an older state was put back)
if call('HGET', META, 'store') ~= ARGV[1] or F(floor) ~= ARGV[2] then return refuse('adopt_lost') end -- @marks-own-stop
if num(call('HGET', META, 'granted')) < num(ARGV[4]) then return refuse('adopt_lost') end -- @marks-newest-state
call('HSET', META, 'identity', 'stopped ' .. ARGV[3]) -- @out-of-service
return 'OK'
