-- needs: fence
-- reads: task 1, run 2, deadlines 1
-- order_exec asks the adapter of a run to start a process. The adapter gets the order with the
-- watch and with every renewal until it has handed in the result, or the call's deadline has
-- passed. The same call again is the same order.
-- ARGV: task, run, secret, presented token, call id, order JSON, ms to the call's deadline, most that may be open
-- Reply: OK
-- Errors: those of fenced, not_available (the adapter starts none), rate_limited (too many at once)
local tid, rid, id = ARGV[1], ARGV[2], ARGV[5]
local t, r, deadline, err = fenced(tid, rid, ARGV[3], ARGV[4])
if err then return err end
if pick(r[1], 'exec').exec ~= '1' then return refuse('not_available', 'subject', 'exec') end
local key = K('exec:', rid)
if call('HEXISTS', key, id) == 1 or call('EXISTS', K('exec-result:', rid .. ':' .. id)) == 1 then return 'OK' end
local open, over, flat = 0, {}, call('HGETALL', key)
for i = 1, #flat, 2 do
  if now < num(string.match(flat[i + 1], '^%d+')) then open = open + 1 else over[#over + 1] = flat[i] end
end
if open >= num(ARGV[8]) then return refuse('rate_limited', 'pending', F(open), 'kind', 'exec') end
if #over > 0 then call('HDEL', key, unpack(over)) end -- nobody waits for these any more
confirm_lease(tid, r, deadline)
call('HSET', key, id, F(now + num(ARGV[7])) .. ' ' .. ARGV[6])
put(r, 'execs', F(open + 1))
wake('task ' .. tid)
return 'OK'
