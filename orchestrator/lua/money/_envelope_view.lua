-- needs: money
-- envelope_view shows an envelope with its open calls and those it was carved
-- into, 500 of them in all; the Go side decodes it.
local shown
local function view(id)
  save()
  shown = shown + 1
  local calls, children = {}, {}
  for _, cid in ipairs(call('ZRANGE', K('calls:', id), 0, 99)) do
    local h = call('HMGET', K('hold:', id .. ':' .. cid), 'run', 'tool', 'need_t', 'need_u', 'deadline', 'ext')
    calls[#calls + 1] = named{ id = cid, run = h[1], tool = h[2], need = { h[3], h[4] },
      left = F(math.max(0, num(h[5]) - now)), external = h[6] }
  end
  for _, child in ipairs(call('ZRANGE', K('children:', id), 0, 499)) do
    if shown >= 500 then break end
    children[#children + 1] = view(child)
  end
  return named{ id = id, record = call('HGETALL', K('env:', id)), calls = calls, children = children }
end

local function envelope_view(id)
  shown = 0
  return view(id)
end

-- envelope_id is the id that stands for "house", which is today's.
local function envelope_id(id) return id == 'house' and 'house:' .. today() or id end

-- refuse_no_envelope is the refusal where there is none of this name; cap is that of
-- the house, or ''.
local function refuse_no_envelope(id, cap)
  if cap == '' and id == 'house:' .. today() then return refuse('not_found', 'kind', 'day') end
  return refuse('not_found', 'kind', 'envelope', 'envelope', id)
end
