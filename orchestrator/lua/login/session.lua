-- flags: allow-oom
-- needs: login
-- session finds the key that a secret stands for, and notes once a minute that
-- somebody uses it, unless a page asks automatically.
-- ARGV: hash of the secret and its host name; 1 if a person uses it now, else 0
-- Reply: {raw ms at which it was opened, raw ms at which it ends, {key, key hash}}
-- Errors: unauthenticated
local key = K('session:', ARGV[1])
local s = call('HMGET', key, 'key', 'opened', 'seen', 'at')
if not s[1] or now - num(s[2]) >= LIFE or now - num(s[3]) >= IDLE or not key_is_live(s[1]) then
  return refuse('unauthenticated', 'kind', 'session')
end
if ARGV[2] == '1' and now - num(s[3]) >= 60000 then call('HSET', key, 'seen', NOW) end
return { s[4], F(raw + num(s[2]) + LIFE - now), { s[1], call('HGETALL', K('key:', s[1])) } }
