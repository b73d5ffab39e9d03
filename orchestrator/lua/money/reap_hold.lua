-- flags: allow-oom
-- needs: settle stale_entry
-- reap_hold settles calls that are past their deadline and that nobody has
-- settled, at what was reserved: nobody knows what they have come to.
-- ARGV: limit
-- Reply: number of calls looked at
local due = call('ZRANGEBYSCORE', K('holds'), '-inf', NOW, 'LIMIT', 0, ARGV[1])
for _, id in ipairs(due) do
  local tid, cid = string.match(id, '^([^:]+):(.*)$')
  local h = load_call(tid, cid)
  if h.state == 'open' then -- @settles-overdue
    settle(tid, cid, h, 'uncertain', 0, 0, 'not settled in time')
  else
    remove_stale_entry('hold_extra', K('holds'), id)
  end
end
return #due
