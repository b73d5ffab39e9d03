-- flags: allow-oom
-- needs: policy
-- policy_history lists the revisions of the wake policy of an agent name, the newest of those before a number.
-- alone
-- ARGV: agent name, number before which they are or 0, most revisions
-- Reply: rows (policy_row, newest first), current (id, or ''), more 0|1
local name, most = ARGV[1], num(ARGV[3])
local ids = call('ZRANGE', K('policy-revisions:', name), ARGV[2] == '0' and '+inf' or '(' .. ARGV[2], '-inf',
  'BYSCORE', 'REV', 'LIMIT', 0, most + 1)
local rows, size, more = {}, 0, #ids > most
for i = 1, math.min(most, #ids) do
  local row, bytes = policy_row(ids[i])
  size = size + bytes
  if size > MAX_REPLY and #rows > 0 then -- @bounds-history
    more = true
    break
  end
  rows[#rows + 1] = row
end
return named{ rows = rows, current = current_revision(name), more = more and 1 or 0 }
