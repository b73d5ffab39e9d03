-- identity names the server process and the history it serves: another pair
-- may have forgotten what was acknowledged. A store in memory has neither.
local function identity()
  local text = redis.pcall('INFO', 'server', 'replication')
  text = type(text) == 'string' and text or ''
  return (string.match(text, 'run_id:(%x+)') or 'memory') .. ' ' .. (string.match(text, 'master_replid:(%x+)') or 'memory'),
    string.match(text, 'role:(%a+)') or 'memory'
end
