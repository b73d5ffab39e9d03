-- flags: allow-oom
-- needs: webhook
-- webhook_list shows targets, or one by its id.
-- alone
-- ARGV: all, or a webhook id
-- Reply: list of webhook_views
-- Errors: not_found
local out = {}
if ARGV[1] ~= 'all' then
  if call('EXISTS', K('webhook:', ARGV[1])) == 0 then return refuse('not_found', 'kind', 'webhook') end
  return { webhook_view(ARGV[1]) }
end
for _, id in ipairs(call('ZRANGE', K('webhooks'), 0, -1)) do out[#out + 1] = webhook_view(id) end
return out
