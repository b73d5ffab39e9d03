-- What the scripts of the registry share beside the part agent.

-- check_version is the refusal of a caller who has seen another version than
-- that of now; ARGV from first on are those it would accept, none means any.
local function check_version(a, first)
  if not ARGV[first] then return nil end
  for i = first, #ARGV do
    if ARGV[i] == a.version then return nil end -- @same-version
  end
  return refuse('version_conflict', 'presented', ARGV[first], 'current', a.version)
end

-- count_role counts the records of a role, and keeps the names of those that have
-- any in order.
local function count_role(key, role, by)
  local n = call('HINCRBY', key, role, by)
  if n <= 0 then
    call('HDEL', key, role)
    call('ZREM', key .. ':names', role)
  elseif n == by then
    call('ZADD', key .. ':names', '0', role)
  end
end

-- agent_view reads an agent's record, with what the verb changed.
local function agent_view(id)
  save()
  local flat = call('HGETALL', K('agent:', id))
  if #flat == 0 then return refuse('not_found', 'kind', 'agent') end
  return named{ id = id, raw = RAW, now = NOW, record = flat, metadata = call('GET', K('metadata:', id)) }
end
