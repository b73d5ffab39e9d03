-- flags: allow-oom
-- needs: webhook
-- webhook_revive lets a target that is dead or off be sent what it has missed.
-- One that is active stays as it is.
-- ARGV: webhook id, actor, request key, body hash
-- Reply: a webhook_view
-- Errors: not_found, idempotency_conflict
local id, key, body = ARGV[1], ARGV[3], ARGV[4]
local was, err = find_request(key, body)
if err then return err end
local w = load(K('webhook:', id))
if not w then return refuse('not_found', 'kind', 'webhook') end
if not was and w.state ~= 'active' then
  local from = w.state
  put(w, 'state', 'active', 'failures', '0', 'failing', '0')
  call('ZADD', K('webhooks'), NOW, id)
  emit_webhook('webhook.revived', id, w, ARGV[2], ',"before":{"state":' .. quote(from) ..
    '},"after":{"state":' .. quote('active') .. '}')
end
if not was then remember(key, body, id, DAY) end
save()
return webhook_view(id)
