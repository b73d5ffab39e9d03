-- flags: allow-oom
-- needs: expire stale_entry
-- urgent
-- expire_due ends leases that are past their deadline. One from before an
-- adoption is left alone while its holder may reclaim it.
-- alone
-- ARGV: actor, limit
-- Reply: number of deadlines handled
local due = call('ZRANGEBYSCORE', K('deadlines'), '-inf', NOW, 'LIMIT', 0, ARGV[2]) -- @due-now
for _, tid in ipairs(due) do
  local t = load(K('task:', tid))
  if t and t.state == 'leased' then
    local ends = reclaim_deadline(t)
    if ends > now then -- @within-grace
      call('ZADD', K('deadlines'), F(ends), tid)
    else
      local confirmed = call('HGET', K('run:', t.run), 'confirmed') == '1'
      local class = num(t.token) <= floor and 'store_adopted'
        or confirmed and 'lease_expired' or 'undelivered' -- @expiry-class
      expire_lease(tid, t, class, class, ARGV[1])
    end
  else
    remove_stale_entry('deadline_extra', K('deadlines'), tid)
  end
end
return #due
