-- lane_mark is how many tasks wait in a lane, then the first and the last of them, each with the number of its runs so
-- far. Other work has another mark, also if it is as much.
local function lane_mark(lane)
  local key = K('lane:', lane)
  local mark = F(call('ZCARD', key))
  for _, at in ipairs({ 0, -1 }) do
    local id = call('ZRANGE', key, at, at)[1]
    if id then mark = mark .. ' ' .. id .. ':' .. (pick(K('task:', id), 'attempt').attempt or '') end -- @marks-work
  end
  return mark
end
