-- needs: webhook
-- webhook_create records a target. It is sent what happens from now on.
-- ARGV: webhook id, name, shown URL, sealed URL, sealed secret, types (comma), format, actor,
--   most, request key, body hash,
--       1 to answer only what the same request has made before
-- Reply: a webhook_view
-- Errors: state_conflict (as many as there may be, or deleted since), idempotency_conflict,
--   not_found (it has made nothing)
local id, key, body = ARGV[1], ARGV[10], ARGV[11]
local was, err = find_request(key, body)
if err then return err end
if was then
  if call('EXISTS', K('webhook:', was)) == 0 then
    return refuse('state_conflict.webhook_deleted', 'kind', 'webhook', 'cause', 'deleted')
  end
  return webhook_view(was)
end
if ARGV[12] == '1' then return refuse('not_found', 'kind', 'webhook') end
if call('ZCARD', K('webhooks')) >= num(ARGV[9]) then
  return refuse('state_conflict.webhook_limit', 'kind', 'webhook', 'limit', ARGV[9])
end
call('HSET', K('webhook:', id), 'name', ARGV[2], 'shown', ARGV[3], 'url', ARGV[4], 'secret', ARGV[5], 'types', ARGV[6],
  'format', ARGV[7], 'state', 'active', 'cursor', meta.seq or '0', 'failures', '0', 'claim', '', 'created', RAW,
  'by', ARGV[8])
call('ZADD', K('webhooks'), NOW, id)
emit_webhook('webhook.created', id, { name = ARGV[2], shown = ARGV[3] }, ARGV[8],
  ',"before":null,"after":{"state":' .. quote('active') .. ',"types":' .. quote(ARGV[6]) ..
  ',"format":' .. quote(ARGV[7]) .. '}')
remember(key, body, id, DAY)
return webhook_view(id)
