-- What the scripts of webhooks share. The list is ordered by the instant at
-- which a target may be looked at next: at once, when a failure has been waited
-- for, when a claim is over, or never.
local NEVER = 9007199254740991

-- webhook_view shows a target. due is the instant of the list.
local function webhook_view(id)
  return named{ id = id, raw = RAW, now = NOW, due = call('ZSCORE', K('webhooks'), id),
    record = call('HGETALL', K('webhook:', id)) }
end

-- emit_webhook says what became of a target, never where it is or its secret.
local function emit_webhook(kind, id, w, actor, more)
  emit(kind, { actor = actor }, '{"webhookId":' .. quote(id) .. ',"name":' .. quote(w.name) ..
    ',"url":' .. quote(w.shown) .. more .. '}')
end
