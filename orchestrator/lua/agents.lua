-- flags: allow-oom
-- agents walks the rosters of the statuses asked for, one after the other, by
-- id. A call looks at a thousand agents at most and says where to go on.
-- ARGV: rows at most (0: count only), roster to begin in or '', id to begin
--   after, role or '', only what this key may see or '', room for tasks at
--   least or '', capabilities (,a,b,) of which it needs one or '', status...
-- Reply: {roster to go on in or '', id to go on after, number that match,
--   row...}, row = {roster, id, role, name, capabilities, max, load, status, last heartbeat ms}
local LOOKS = 1000
local rows, from, after, role, key = num(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local room, caps = ARGV[6], ARGV[7]

-- The rosters of a status from one on: that of the role, of all roles, or of
-- those in which the key has registered an agent.
local function rosters(status, first, out)
  local mine
  if key ~= '' then
    mine = {}
    local flat = call('HGETALL', K('roles-of:', key))
    for i = 1, #flat, 2 do
      if role == '' or flat[i] == role then mine[#mine + 1] = flat[i] end
    end
    table.sort(mine)
  elseif role ~= '' then
    mine = { role }
  end
  if not mine then out[#out + 1] = status end
  for _, r in ipairs(mine or {}) do
    if status .. '|' .. r >= first then out[#out + 1] = status .. '|' .. r end
  end
end

local function shares(own)
  for cap in string.gmatch(own, '[^,]+') do
    if string.find(caps, ',' .. cap .. ',', 1, true) then return true end
  end
  return false
end

local function matches(a)
  if key ~= '' and a[2] == '' and a[3] ~= key then return false end
  if room ~= '' and a[5] == '' and num(room) > 0 then return false end
  if room ~= '' and a[5] ~= '' and num(a[5]) - num(a[6]) < num(room) then return false end
  return caps == '' or shares(a[4])
end

local groups, begun = {}, from == ''
for i = 8, #ARGV do
  -- Names of one status have the same beginning, so their order is that of the roles.
  local here = not begun and string.match(from, '^%a+') == ARGV[i]
  begun = begun or here
  if begun then rosters(ARGV[i], here and from or '', groups) end
end
local out, found, looked = { '', '', 0 }, 0, 0
for _, group in ipairs(groups) do
  local min = group == from and '(' .. after or '-'
  local ids = call('ZRANGE', K('roster:', group), min, '+', 'BYLEX', 'LIMIT', 0, LOOKS - looked)
  for _, id in ipairs(ids) do
    looked = looked + 1
    local a = call('HMGET', K('agent:', id), 'name', 'role', 'owner', 'caps', 'max', 'load', 'status', 'beat')
    if a[7] and matches(a) then
      found = found + 1
      if rows > 0 then out[#out + 1] = { group, id, a[2], a[1], a[4], a[5], a[6], a[7], a[8] } end
    end
    if looked == LOOKS or rows > 0 and found == rows then
      out[1], out[2], out[3] = group, id, found
      return out
    end
  end
end
out[3] = found
return out
