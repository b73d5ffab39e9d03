-- needs: key_view login
-- essential
-- login_begin stores a one-time code for a key. It is valid for a minute.
-- ARGV: hash of the code and of the host name that it is for, hash of the key, class of the address it is asked from
-- Reply: a key_view
-- Errors: unauthenticated (the key)
local id = call('GET', K('keyhash:', ARGV[2]))
if not id or not key_is_live(id) then return refuse('unauthenticated', 'kind', 'key') end -- @key-begins-login
local code = K('login:', ARGV[1])
if call('EXISTS', code) == 0 then
  call('HSET', code, 'key', id, 'from', ARGV[3], 'at', NOW)
  call('PEXPIRE', code, F(CODE_LIFE))
end
return key_view(id)
