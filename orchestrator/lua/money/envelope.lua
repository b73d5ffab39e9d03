-- flags: allow-oom
-- needs: envelope_view money
-- envelope shows an envelope: its columns, the calls under way and what was
-- carved from it. The day that has just begun is shown as its first task will
-- find it; nothing is written.
-- alone
-- ARGV: task, house:<date> or house, cap of the house or ''
-- Reply: {id, record, {call...}, {the same of each child...}}
-- Errors: not_found
local id, cap = envelope_id(ARGV[1]), ARGV[2]
if envelope(id).parent then return envelope_view(id) end
if cap == '' or id ~= 'house:' .. today() then return refuse_no_envelope(id, cap) end
local t, u = string.match(cap, '^(%d+) (%d+)$')
local fresh = {}
for _, column in ipairs({ 'granted', 'available', 'envelope' }) do
  for field, amount in pairs({ _t = t, _u = u }) do
    fresh[#fresh + 1] = column .. field
    fresh[#fresh + 1] = amount
  end
end
for _, field in ipairs({ 'total_t', 'total_u' }) do
  fresh[#fresh + 1] = field
  fresh[#fresh + 1] = '0'
end
return named{ id = id, record = fresh, calls = {}, children = {} }
