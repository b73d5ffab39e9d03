-- flags: allow-oom
-- needs: webhook
-- webhook_claim gives one deliverer a target that has something to be sent, for
-- as long as a claim lasts in store time. With the same claim again, as after a
-- lost reply, it gives the same one. Without one it says when to look again.
-- ARGV: claim, ms it lasts
-- Reply: seq, wait (ms until a target is due), webhook (a webhook_view)
local claim, life = ARGV[1], num(ARGV[2])
local seq = num(meta.seq)

local function claimed()
  for _, id in ipairs(call('ZRANGEBYSCORE', K('webhooks'), '(' .. NOW, F(now + life))) do
    if call('HGET', K('webhook:', id), 'claim') == claim then return id end
  end
end

local function waiting()
  for _, id in ipairs(call('ZRANGEBYSCORE', K('webhooks'), '-inf', NOW)) do
    if num(call('HGET', K('webhook:', id), 'cursor')) < seq then return id end
  end
end

local id = claimed() -- @claims-again
if not id then
  id = waiting()
  if not id then
    local later = call('ZRANGEBYSCORE', K('webhooks'), '(' .. NOW, '(' .. F(NEVER), 'WITHSCORES', 'LIMIT', 0, 1)
    return named{ seq = F(seq), wait = later[2] and F(num(later[2]) - now) }
  end
  call('HSET', K('webhook:', id), 'claim', claim)
  call('ZADD', K('webhooks'), F(now + life), id)
end
return named{ seq = F(seq), webhook = webhook_view(id) }
