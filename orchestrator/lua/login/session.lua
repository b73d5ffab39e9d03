-- flags: allow-oom
-- needs: key_view login
-- session finds the key that a secret stands for, and notes once a minute that
-- somebody uses it, unless a page asks automatically.
-- ARGV: hash of the secret and its host name; 1 if a person uses it now, else 0
-- Reply: opened, ends (raw ms), key (a key_view)
-- Errors: unauthenticated
local key = K('session:', ARGV[1])
local s = call('HMGET', key, 'key', 'opened', 'seen', 'at')
if not s[1] or now - num(s[2]) >= LIFE or now - num(s[3]) >= IDLE or not key_is_live(s[1]) then
  return refuse('unauthenticated', 'kind', 'session')
end
if ARGV[2] == '1' and now - num(s[3]) >= 60000 then call('HSET', key, 'seen', NOW) end
return named{ opened = s[4], ends = F(raw + num(s[2]) + LIFE - now), key = key_view(s[1]) }
