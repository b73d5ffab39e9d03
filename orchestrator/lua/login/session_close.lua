-- flags: allow-oom
-- needs: login
-- session_close ends a login. One that has ended already stays as it is.
-- ARGV: hash of the secret and its host name
-- Reply: OK
local id = call('HGET', K('session:', ARGV[1]), 'key')
if id then close_logins(id, { ARGV[1] }, call('ZCARD', K('sessions-of:', id)), 'logout') end
return 'OK'
