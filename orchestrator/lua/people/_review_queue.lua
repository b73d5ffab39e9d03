-- The review queue, narrowed by sets that the tasks have to be in. A look at it
-- goes through 2,000 tasks at most.
local LOOKS = 2000

-- filter_sets names these sets, from ARGV first on, and the smallest of them.
local function filter_sets(from)
  local sets = { K('by-state:', 'review') }
  for i = from, #ARGV do sets[#sets + 1] = K(ARGV[i]) end
  local source, fewest = sets[1], call('ZCARD', sets[1])
  for i = 2, #sets do
    local n = call('ZCARD', sets[i])
    if n < fewest then source, fewest = sets[i], n end
  end
  return sets, source
end

-- in_all_sets tells whether a task is in all sets but one.
local function in_all_sets(sets, but, tid)
  for _, key in ipairs(sets) do
    if key ~= but and not call('ZSCORE', key, tid) then return false end
  end
  return true
end

-- read_after reads a set on from an order: ids and scores by turns.
local function read_after(key, last, limit)
  return call('ZRANGEBYSCORE', key, last == '' and '-inf' or '(' .. last, '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
end
