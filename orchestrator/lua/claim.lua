-- needs: stray lane queue handoff agent answer view
-- claim notes who looks after a hand-off. The same person may claim again.
-- ARGV: hand-off, actor, request key, body hash
-- Reply: {raw ms, now ms, hand-off view, last report}
-- Errors: not_found, state_conflict (claimed by somebody else), idempotency_conflict
local hid, by, key, body = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local was, err = once(key, body)
if err then return err end
if not was then
  local h, _, no = open_handoff(hid)
  if no then return no end
  if h.claimed ~= '' and h.claimed ~= by then
    return refuse('state_conflict', 'state', 'claimed', 'need', 'unclaimed', 'by', h.claimed)
  end
  if h.claimed == '' then
    put(h, 'claimed', by)
    emit('handoff.claimed', { task = h.task, actor = by }, '{"state":"handoff","handoffId":' .. quote(hid) .. '}')
  end
  remember(key, body, hid, DAY)
end
save()
local tid = call('HGET', K('handoff:', hid), 'task')
return { RAW, NOW, handoff_view(hid), call('LINDEX', K('reports:', tid), -1) }
