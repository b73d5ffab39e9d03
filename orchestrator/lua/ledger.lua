-- flags: allow-oom
-- needs: money envelope
-- ledger pages through the rows of one envelope or of all, oldest first.
-- ARGV: task, house:<date>, house or '' for all, after (seq), limit
-- Reply: {seq, {field, value...}}...
local id, after, limit = ARGV[1], ARGV[2], ARGV[3]
if id ~= '' then id = envelope_named(id) end
if id == '' then return call('XRANGE', K('ledger'), F(num(after) + 1) .. '-0', '+', 'COUNT', limit) end
local rows = {}
for _, seq in ipairs(call('ZRANGEBYSCORE', K('ledger-of:', id), '(' .. after, '+inf', 'LIMIT', 0, limit)) do
  rows[#rows + 1] = call('XRANGE', K('ledger'), seq .. '-0', seq .. '-0')[1]
end
return rows
