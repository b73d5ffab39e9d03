-- flags: allow-oom
-- needs: key_view
-- keys lists API keys, or finds one by its id or by the hash of its secret.
-- alone
-- ARGV: by (all | id | hash), value
-- Reply: raw (ms), keys (key_views)
-- Errors: not_found
local ids
if ARGV[1] == 'all' then
  ids = call('ZRANGE', K('keys'), 0, -1)
elseif ARGV[1] == 'id' then
  ids = { ARGV[2] }
else
  ids = { call('GET', K('keyhash:', ARGV[2])) or nil }
end
local shown = {}
for _, id in ipairs(ids) do
  if call('EXISTS', K('key:', id)) == 1 then shown[#shown + 1] = key_view(id) end
end
if ARGV[1] ~= 'all' and #shown == 0 then return refuse('not_found', 'kind', 'key') end
return named{ raw = RAW, keys = shown }
