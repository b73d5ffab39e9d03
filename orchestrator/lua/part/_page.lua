-- first_after is the place in an ordered set of the first row after a cursor, which is the score
-- and the id of a row. Rows of one score stand in the order of their ids, so it is found by halving.
local function first_after(key, score, before)
  if before == '' then return score == '' and 0 or call('ZCOUNT', key, '-inf', score) end
  local low, high = call('ZCOUNT', key, '-inf', '(' .. score), call('ZCOUNT', key, '-inf', score)
  while low < high do
    local mid = math.floor((low + high) / 2)
    if call('ZRANGE', key, mid, mid)[1] <= before then
      low = mid + 1
    else
      high = mid
    end
  end
  return low
end
