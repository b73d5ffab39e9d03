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

-- wake_queues are the lanes with waiting tasks, each followed by its lane_mark, and the requests that wait for a lease.
-- It has the best 100 lanes and at most 200 requests.
local function wake_queues()
  local lanes = {}
  for _, lane in ipairs(call('ZRANGE', K('lanes'), 0, 99)) do
    lanes[#lanes + 1] = lane
    lanes[#lanes + 1] = lane_mark(lane)
  end
  return lanes, call('ZRANGEBYSCORE', K('waiters'), NOW, '+inf', 'LIMIT', 0, 200)
end
