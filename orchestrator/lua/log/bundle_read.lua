-- flags: allow-oom
-- needs: bundle
-- bundle_read reads one piece of the bundle that a task keeps. An upload that is not
-- finished is not read.
-- alone
-- ARGV: task, SHA-256 of the bundle, number of the piece
-- Reply: the bytes
-- Errors: not_found (also when another bundle has taken its place)
if not call('HGET', K('task:', ARGV[1]), 'state') then return refuse('not_found', 'kind', 'task') end
local kept = call('HGET', K('bundle:', ARGV[1]), 'sha')
if kept ~= ARGV[2] then return refuse('not_found', 'kind', 'bundle') end -- @whole-bundle
return call('HGET', bundle_pieces(ARGV[1], ARGV[2]), ARGV[3]) or refuse('not_found', 'kind', 'bundle')
