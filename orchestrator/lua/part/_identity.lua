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

-- verified is the identity that this server was found to have, and verified_at when that was, by
-- the server's own clock. Redis forgets them when it starts or takes a copy of another server's
-- data, because it loads its functions from their source then.
local verified, verified_at

-- TRUST is for how many ms the server is not asked again. It can become another one meanwhile, which
-- may lack what was acknowledged elsewhere. But an adoption takes longer (adoptionPause in Go), so
-- nobody has been granted anything elsewhere by then.
local TRUST = 5

-- same_server reports whether this is the server of an identity. It costs a fraction of identity.
-- The history alone is enough: it is a new one whenever a server that may be written to has
-- started or was promoted. clock is the server's own.
local function same_server(known, clock)
  local age = clock - (verified_at or clock)
  if known and known == verified and age >= 0 and age < TRUST then return true end -- @trusts-verified
  local history = string.match(known or '', ' (%w+)$')
  local same = history and string.find(server_info('replication'), 'master_replid:' .. history, 1, true)
  verified, verified_at = same and known or nil, clock
  return same
end
