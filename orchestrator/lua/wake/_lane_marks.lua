-- needs: lane_mark
-- lane_marks are the best 100 lanes with waiting tasks, each with its lane_mark after it.
local function lane_marks()
  local lanes = {}
  for _, lane in ipairs(call('ZRANGE', K('lanes'), 0, 99)) do
    lanes[#lanes + 1] = lane
    lanes[#lanes + 1] = lane_mark(lane)
  end
  return lanes
end

-- waiting_requests are the requests that wait for a lease, at most 200.
local function waiting_requests() return call('ZRANGEBYSCORE', K('waiters'), NOW, '+inf', 'LIMIT', 0, 200) end
