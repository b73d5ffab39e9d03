-- flags: allow-oom
-- needs: envelope_view
-- ledger pages through the rows of one envelope or of all, oldest first, or
-- newest first.
-- alone
-- ARGV: task, house:<date>, house or '' for all, after (seq; newest first: before
--   it, 0 the end), limit, 1 for newest first
-- Reply: list of {seq, {field, value...}}, as Redis shows an entry of a stream
local id, after, limit, back = ARGV[1], num(ARGV[2]), ARGV[3], ARGV[4] == '1'
if id ~= '' then id = envelope_id(id) end
local below = after == 0 and '+' or F(after - 1) .. '-99'
if id == '' and back then return call('XREVRANGE', K('ledger'), below, '-', 'COUNT', limit) end
if id == '' then return call('XRANGE', K('ledger'), F(after + 1) .. '-0', '+', 'COUNT', limit) end
local seqs
if back then
  seqs = call('ZREVRANGEBYSCORE', K('ledger-of:', id), after == 0 and '+inf' or '(' .. F(after), '-inf',
    'LIMIT', 0, limit)
else
  seqs = call('ZRANGEBYSCORE', K('ledger-of:', id), '(' .. F(after), '+inf', 'LIMIT', 0, limit)
end
local rows = {}
for _, seq in ipairs(seqs) do rows[#rows + 1] = call('XRANGE', K('ledger'), seq .. '-0', seq .. '-0')[1] end
return rows
