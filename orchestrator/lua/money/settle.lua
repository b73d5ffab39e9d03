-- flags: allow-oom
-- needs: charge money quota settle
-- settle books what a reserved call cost, once. It needs no lease that holds:
-- what is spent is spent. Where nobody knew what the call had come to, a true
-- figure corrects that.
-- ARGV: task, call id, nonce, outcome, tokens, nano-dollars, result or '', detail, most kept answers of a
--   tree in a day, most bytes of these
-- Reply: charged, available (tokens and nano-dollars each), overrun (1 when that envelope is locked)
-- Errors: not_found
local tid, cid, outcome, cost_t, cost_u = ARGV[1], ARGV[2], ARGV[4], num(ARGV[5]), num(ARGV[6])
local h = load_call(tid, cid)
if not h.state or h.nonce ~= ARGV[3] then return refuse('not_found', 'kind', 'call') end -- @own-call
local p
if h.state == 'open' then -- @settles-once
  p = settle(tid, cid, h, outcome, cost_t, cost_u, ARGV[8])
elseif h.outcome == 'uncertain' and outcome ~= 'uncertain' then -- @corrects-uncertain
  p = correct_call(tid, cid, h, outcome, cost_t, cost_u, ARGV[8])
else
  p = payer_of(tid, envelope(tid))
  outcome = ''
end
if h.keyed == '1' and ARGV[7] ~= '' and outcome == h.outcome then
  local root = root_of(tid, pick(K('task:', tid), 'root'))
  local _, answers, bytes, slots = count_kept_calls(root)
  if answers < num(ARGV[9]) and bytes + #ARGV[7] <= num(ARGV[10]) then -- @keeps-answer
    call('SET', K('result:', tid .. ':' .. cid), ARGV[7], 'PX', F(DAY))
    record_kept_call(root, slots, 0, 1, #ARGV[7]) -- @counts-answers
  end
end
return named{ charged = { num(h.cost_t), num(h.cost_u) }, available = { free_amount(p) }, -- @shows-free
  overrun = is_locked(p) and 1 or 0 }
