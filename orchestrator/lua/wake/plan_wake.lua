-- needs: wake
-- plan_wake stores when the scheduler looks at a session next.
-- ARGV: session, ms of store time until then, 1 if a wake by the clock was left out because nothing has
--   changed, ms that this is kept
-- Reply: OK
local sid = ARGV[1]
call('ZADD', K('wake-due'), 'XX', F(now + num(ARGV[2])), sid) -- @plans-what-lives
if ARGV[3] == '1' then
  local w = wakes.read(sid)
  put(w, 'unchanged', NOW)
  wakes.keep(w, num(ARGV[4]))
end
return 'OK'
