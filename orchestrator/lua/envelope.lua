-- flags: allow-oom
-- needs: money envelope
-- envelope shows an envelope: its columns, the calls under way and what was
-- carved from it.
-- ARGV: task, house:<date> or house
-- Reply: {id, record, {call...}, {the same of each child...}}
-- Errors: not_found
local id = envelope_named(ARGV[1])
if not envelope(id).parent then return refuse('not_found', 'kind', 'envelope') end
return envelope_view(id)
