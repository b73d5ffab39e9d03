-- Run keys: keys of scope agent for one agent id. Another key, the parent, makes
-- them; they end with it, or a day after they were renewed last.

-- run_key_expiry is the raw time at which a run key ends: after its life, and never
-- later than its parent. It is a whole minute, so a renewal that is repeated at
-- once is the same renewal.
local function run_key_expiry(parent, life)
  local ends = math.floor((raw + life) / 60000) * 60000
  local last = num(call('HGET', K('key:', parent), 'expires'))
  if last > 0 then ends = math.min(ends, last) end -- @ends-with-parent
  return F(ends)
end

local function set_run_key_expiry(id, parent, ends)
  call('HSET', K('key:', id), 'expires', ends) -- @run-key-ends
  call('ZADD', K('run-keys'), ends, id)
  call('ZADD', K('run-keys-of:', parent), ends, id)
end

-- delete_expired_run_keys deletes up to limit run keys of an index that have expired.
-- One with leases stays for another hour: a revocation of its parent ends
-- them, and finds them by it.
local function delete_expired_run_keys(index, limit)
  local n = 0
  for _, id in ipairs(call('ZRANGEBYSCORE', index, '-inf', RAW, 'LIMIT', 0, limit)) do
    local k = call('HMGET', K('key:', id), 'hash', 'parent')
    if call('ZCARD', K('leases-of:', id)) > 0 then -- @keeps-holding-key
      call('ZADD', index, F(raw + 3600000), id)
    else
      call('DEL', K('key:', id), K('keyhash:', k[1])) -- @deletes-run-key
      call('ZREM', K('keys'), id) -- @unlists-run-key
      call('ZREM', K('run-keys'), id)
      call('ZREM', K('run-keys-of:', k[2]), id) -- @leaves-parent
      n = n + 1
    end
  end
  return n
end

-- revoke_run_keys revokes the run keys of a revoked key, and ends their leases
-- unless these are kept. It returns how many run keys there are, and how many
-- leases they have.
local function revoke_run_keys(parent, ends)
  local keys, leases = 0, 0
  for _, id in ipairs(call('ZRANGE', K('run-keys-of:', parent), 0, -1)) do
    local k = call('HMGET', K('key:', id), 'revoked', 'hash', 'leases')
    if k[1] == '0' then
      call('HSET', K('key:', id), 'revoked', RAW, 'leases', 'kept') -- @marks-run-key
      wake('key ' .. k[2])
      wake('revoked ' .. id)
    end
    keys, leases = keys + 1, leases + call('ZCARD', K('leases-of:', id))
    if ends and k[3] ~= 'ended' then -- @ends-kept-leases
      call('HSET', K('key:', id), 'leases', 'ended')
      call('ZADD', K('chores'), '0', 'key:' .. id) -- @chores-of-run-key
    end
  end
  return keys, leases
end
