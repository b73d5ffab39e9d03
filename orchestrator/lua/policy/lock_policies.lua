-- lock_policies gives a process the lock of the directory of policy files, renews it or ends it. A process
-- with the lock gets the newest revision of each name.
-- ARGV: holder, ms of store time that the lock lasts, or 0 to end it
-- Reply: locked 0|1, heads (name, id, action, over; none without the lock)
local holder, lasts = ARGV[1], num(ARGV[2])
local lock = call('HMGET', K('policy-lock'), 'holder', 'until')
if lock[1] and lock[1] ~= holder and num(lock[2]) > now then -- @locks-directory
  return named{ locked = 0, heads = {} }
end
if lock[1] ~= holder or lasts == 0 then call('DEL', K('policy-files')) end -- @forgets-files
if lasts == 0 then -- that a process had the directory stays known: until one has it again, no wake is sent
  if lock[1] == holder then call('HSET', K('policy-lock'), 'holder', '', 'until', '0', 'had', NOW) end -- @ends-own-lock
  return named{ locked = 0, heads = {} }
end
if lock[1] ~= holder then call('HSET', K('policy-lock'), 'since', NOW) end -- @knows-since-lock
call('HSET', K('policy-lock'), 'holder', holder, 'until', F(now + lasts), 'had', F(now + lasts))
local heads = {}
for _, name in ipairs(call('ZRANGE', K('policies'), 0, -1)) do
  local id = call('ZRANGE', K('policy-revisions:', name), -1, -1)[1]
  local r = call('HMGET', K('policy-revision:', id), 'action', 'over')
  heads[#heads + 1] = named{ name = name, id = id, action = r[1], over = r[2] or '' }
end
return named{ locked = 1, heads = heads }
