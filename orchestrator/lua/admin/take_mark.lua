-- flags: allow-oom
-- clockless
-- take_mark puts a store into service again, on this server and as it is, if it was
-- stopped under the mark and nothing has adopted it since. The mark is gone then.
-- The floor stays, so every lease goes on and nothing is told. Store time goes on
-- where it stood.
-- ARGV: identity seen, store id, floor, mark
-- Reply: OK
-- Errors: adopt_lost (another mark, another store, or adopted since), store_newer, store_migrating
local stopped = pick(META, 'store', 'identity', 'floor', 'now', 'format', 'migrating')
local wrong = wrong_format(stopped.format, stopped.migrating)
if wrong then return wrong end
local here = identity()
if here ~= ARGV[1] or stopped.store ~= ARGV[2] or stopped.floor ~= ARGV[3]
    or stopped.identity ~= 'stopped ' .. ARGV[4] then
  return refuse('adopt_lost') -- @same-mark
end
local server = server_clock()
set_time(num(stopped.now), server)
put(stopped, 'identity', here, 'now', NOW, 'raw', RAW) -- @takes-mark
return 'OK'
