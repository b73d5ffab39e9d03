-- flags: allow-oom
-- needs: policy
-- policies lists the agent names that have or had a wake policy, and those that have only a file, by name.
-- alone
-- ARGV: name behind which they are or '', most names
-- Reply: rows (each as policy answers a policy), more 0|1
local after, most = ARGV[1], num(ARGV[2])
local names, seen = {}, {}
for _, key in ipairs{ 'policies', 'policy-files' } do
  for _, name in ipairs(key == 'policies' and call('ZRANGE', K(key), 0, -1) or call('HKEYS', K(key))) do
    if not seen[name] and name > after then names[#names + 1] = name end -- @lists-names-once
    seen[name] = true
  end
end
table.sort(names)
local rows, size = {}, 0
for i = 1, math.min(most, #names) do
  local row, bytes = policy_state(names[i])
  size = size + bytes
  if size > MAX_REPLY and #rows > 0 then break end -- @bounds-listed-policies
  rows[#rows + 1] = row
end
return named{ rows = rows, more = #rows < #names and 1 or 0 }
