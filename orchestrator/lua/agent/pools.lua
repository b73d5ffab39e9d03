-- flags: allow-oom
-- pools sums up the agents of each role, by name. Agents of the role attached are in none. A call looks at a thousand
-- agents at most and says where to go on.
-- ARGV: role or '', only what this key may see or '', role to begin with or
--   '', active agent of it to begin after or ''
-- Reply: from (role to go on with), after (agent to go on after), pools: role, max (sum of maxima), load (of the
--   same agents), caps (64 capabilities at most of active agents, as a,b), members (number of agents by status, none
--   where the pool goes on)
local LOOKS, CAPS = 1000, 64
local STATUSES = { 'active', 'unhealthy', 'draining', 'dead', 'deregistered' }
local role, key, from, after = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local EACH = 5 -- looks that a pool costs beside its active agents
local counts = key == '' and K('pools') or K('roles-of:', key)
local roles = {}
if role == '' then
  -- Without a role there is no pool.
  roles = call('ZRANGE', counts .. ':names', from == '' and '(' or '[' .. from, '+', 'BYLEX', 'LIMIT', 0, LOOKS / EACH)
elseif call('HEXISTS', counts, role) == 1 then
  roles = { role }
end

local out, looked = {}, 0
for i = #roles, 1, -1 do
  if roles[i] == 'attached' then -- @no-pool-of-attached
    table.remove(roles, i)
    looked = EACH
  end
end
for _, r in ipairs(roles) do
  local going_on = r == from and after ~= ''
  local ids = call('ZRANGE', K('roster:', 'active|' .. r), going_on and '(' .. after or '-', '+', 'BYLEX',
    'LIMIT', 0, LOOKS - looked)
  local most, load, caps, known = 0, 0, {}, {}
  for _, id in ipairs(ids) do
    local a = call('HMGET', K('agent:', id), 'max', 'load', 'caps')
    for cap in string.gmatch(a[3] or '', '[^,]+') do
      if not known[cap] and #caps < CAPS then
        known[cap], caps[#caps + 1] = true, cap
      end
    end
    if a[1] and a[1] ~= '' then most, load = most + num(a[1]), load + num(a[2]) end
  end
  local members = {}
  if not going_on then
    for _, s in ipairs(STATUSES) do members[s] = call('ZCARD', K('roster:', s .. '|' .. r)) end
  end
  out[#out + 1] = named{ role = r, max = F(most), load = F(load), caps = table.concat(caps, ','),
    members = named(members) }
  looked = looked + #ids + EACH
  if looked >= LOOKS then return named{ from = r, after = ids[#ids], pools = out } end
end
return named{ pools = out }
