-- flags: allow-oom
-- agents walks the rosters of the statuses asked for, one after the other, by
-- id. A call looks at a thousand agents at most and says where to go on.
-- alone
-- ARGV: rows at most (0: count only), roster to begin in or '', id to begin
--   after, role or '', only what this key may see or '', room for tasks at
--   least or '', capabilities (,a,b,) of which it needs one or '', 1 to include the
--   role attached or 0, status...
-- Reply: roster (to go on in), after (id to go on after), found (number that match), rows: roster, agent_id,
--   role_id, name, tags (capabilities), max, load, status, last_heartbeat_at (ms)
local LOOKS = 1000
local rows, from, after, role, key = num(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local room, caps, attached = ARGV[6], ARGV[7], ARGV[8] == '1'
local plain = room == '' and caps == '' -- all that a roster holds match

local function shares(own)
  for cap in string.gmatch(own, '[^,]+') do
    if string.find(caps, ',' .. cap .. ',', 1, true) then return true end
  end
  return false
end

local function matches(a)
  if a[2] == 'attached' and not attached then return false end -- @hides-attached
  if key ~= '' and (a[2] == '' or a[2] == 'attached') and a[3] ~= key then return false end -- @own-attached
  if room ~= '' and a[5] == '' and num(room) > 0 then return false end
  if room ~= '' and a[5] ~= '' and num(a[5]) - num(a[6]) < num(room) then return false end
  return caps == '' or shares(a[4])
end

-- walk looks at the agents of a roster; it returns true when that is enough for
-- one call. An empty roster is a look, too: a key can have many. Where all that
-- a roster holds match and none is shown, its size says enough.
local shown, found, looked, next_roster, next_after = {}, 0, 0, nil, nil
local function stop(group, id)
  next_roster, next_after = group, id
  return true
end

local function page() return named{ roster = next_roster, after = next_after, found = found, rows = shown } end

local function walk(group, whole)
  local ids = {}
  if rows > 0 or not whole then
    ids = call('ZRANGE', K('roster:', group), group == from and '(' .. after or '-', '+', 'BYLEX',
      'LIMIT', 0, LOOKS - looked)
  elseif group ~= from then
    found = found + call('ZCARD', K('roster:', group)) -
        (attached and 0 or call('ZCARD', K('roster:', group .. '|attached'))) -- @counts-no-attached
  end
  for _, id in ipairs(ids) do
    looked = looked + 1
    local a = call('HMGET', K('agent:', id), 'name', 'role', 'owner', 'caps', 'max', 'load', 'status', 'beat')
    if a[7] and matches(a) then
      found = found + 1
      if rows > 0 then
        shown[#shown + 1] = named{ roster = group, agent_id = id, role_id = a[2], name = a[1], tags = a[4], max = a[5],
          load = a[6], status = a[7], last_heartbeat_at = a[8] }
      end
    end
    if looked == LOOKS or rows > 0 and found == rows then return stop(group, id) end
  end
  looked = looked + 1
  return looked == LOOKS and stop(group, '~') -- which comes after every id
end

-- walk_own walks the rosters of a status in which the key has registered an
-- agent, from the role first on.
local function walk_own(status, first)
  local min = first and '[' .. first or '-'
  while true do
    local names = call('ZRANGE', K('roles-of:', key) .. ':names', min, '+', 'BYLEX', 'LIMIT', 0, 100)
    for _, name in ipairs(names) do
      if walk(status .. '|' .. name, plain and name ~= '' and name ~= 'attached') then return true end
    end
    if #names < 100 then return false end
    min = '(' .. names[100]
  end
end

local begun = from == ''
for i = 9, #ARGV do
  local status = ARGV[i]
  local here = not begun and string.match(from, '^%a+') == status
  begun = begun or here
  local enough = false
  if begun and key ~= '' and role == '' then
    enough = walk_own(status, here and string.match(from, '|(.*)$'))
  elseif begun and (key == '' or call('HEXISTS', K('roles-of:', key), role) == 1) then
    enough = walk(role == '' and status or status .. '|' .. role, plain and role ~= 'attached')
  end
  if enough then return page() end
end
return page()
