-- flags: allow-oom
-- spending reads the totals of some days: by role and model, or those of one label.
-- alone
-- ARGV: name of the label or '', day...
-- Reply: days: day, totals (field and figure by turns), labels (of this name, and those that stand for others)
local name, days = ARGV[1], {}
for i = 2, #ARGV do
  local day = ARGV[i]
  local labels = {}
  local flat = name ~= '' and call('HGETALL', K('spending-by-label:', day)) or {}
  for j = 1, #flat, 2 do
    local label = string.match(flat[j], '^%S+ (.*)$') or ''
    local of = string.match(label, '^[^=]*')
    if label ~= '' and (of == name or of == '') then
      labels[#labels + 1] = flat[j]
      labels[#labels + 1] = flat[j + 1]
    end
  end
  local totals = call('HGETALL', K('spending:', day))
  if #totals > 0 then days[#days + 1] = named{ day = day, totals = totals, labels = labels } end
end
return named{ days = days }
