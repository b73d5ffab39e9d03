-- flags: allow-oom
-- needs: webhook
-- webhook_delete forgets a target with its secrets; what is under way to it may
-- still arrive.
-- ARGV: webhook id, actor, request key, body hash
-- Reply: a webhook_view whose record has no secrets
-- Errors: not_found, idempotency_conflict
local id, key, body = ARGV[1], ARGV[3], ARGV[4]
local was, err = find_request(key, body)
if err then return err end

-- What is kept for a repeated request is a list, so that each build of Picket can show it.
local function shown(kept)
  return named{ id = kept[4], raw = kept[1], now = kept[2], due = kept[3], record = kept[5] }
end
if was then return shown(cjson.decode(was)) end
local w = load(K('webhook:', id))
if not w then return refuse('not_found', 'kind', 'webhook') end
local record, names, flat = {}, {}, call('HGETALL', K('webhook:', id))
for i = 1, #flat, 2 do
  if flat[i] ~= 'url' and flat[i] ~= 'secret' then names[#names + 1] = flat[i] end
end
table.sort(names) -- a store that was loaded again has another order
for _, name in ipairs(names) do
  record[#record + 1] = name
  record[#record + 1] = w[name]
end
local kept = { RAW, NOW, call('ZSCORE', K('webhooks'), id), id, record }
call('DEL', K('webhook:', id))
call('ZREM', K('webhooks'), id)
emit_webhook('webhook.deleted', id, w, ARGV[2], ',"before":{"state":' .. quote(w.state) .. '},"after":null')
remember(key, body, cjson.encode(kept), DAY)
return shown(kept)
