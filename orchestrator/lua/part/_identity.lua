-- identity names the server process and the history it serves: another pair
-- may have forgotten what was acknowledged. A store in memory has neither.
local function server_info(...)
  local text = redis.pcall('INFO', ...)
  return type(text) == 'string' and text or 'run_id:memory master_replid:memory role:memory'
end

local function identity()
  local text = server_info('server', 'replication')
  return string.match(text, 'run_id:(%w+)') .. ' ' .. string.match(text, 'master_replid:(%w+)'),
    string.match(text, 'role:(%a+)')
end

-- same_server tells whether this is the server of an identity, for a fraction of
-- the price. The history says it alone: it is a new one whenever a server that
-- may be written to has started or was promoted.
local function same_server(known)
  local history = string.match(known or '', ' (%w+)$')
  return history and string.find(server_info('replication'), 'master_replid:' .. history, 1, true)
end
