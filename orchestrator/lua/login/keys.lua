-- flags: allow-oom
-- keys lists API keys, or finds one by its id or by the hash of its secret.
-- ARGV: by (all | id | hash), value
-- Reply: {raw ms, row...}, row = {key id, key hash}
-- Errors: not_found
local ids
if ARGV[1] == 'all' then
  ids = call('ZRANGE', K('keys'), 0, -1)
elseif ARGV[1] == 'id' then
  ids = { ARGV[2] }
else
  ids = { call('GET', K('keyhash:', ARGV[2])) or nil }
end
local out = { RAW }
for _, id in ipairs(ids) do
  local flat = call('HGETALL', K('key:', id))
  if #flat > 0 then out[#out + 1] = { id, flat } end
end
if ARGV[1] ~= 'all' and #out == 1 then return refuse('not_found', 'kind', 'key') end
return out
