-- needs: answer conflicts view
-- essential
-- claim notes who looks after a hand-off. The same person may claim it again, and another person
-- may take it over. It may also name the person who should take it, which gives nobody a right.
-- ARGV: hand-off, actor, request key, body hash, take over 0|1, assignee or '' to leave it as it is
-- Reply: raw, now (ms), row: handoff (a handoff_view), report (the last one), spec
-- Errors: not_found, state_conflict (claimed by somebody else, or decided), task_closed, idempotency_conflict
local hid, by, key, body = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local was, err = find_request(key, body)
if err then return err end
if not was then
  local h, _, no = load_open_handoff(hid)
  if no then return no end
  if h.claimed ~= '' and h.claimed ~= by and ARGV[5] ~= '1' then -- @claimed-by-other
    return refuse_as_second('state_conflict.claimed', h.claimed, 'state', 'claimed', 'at', h.claimed_at or '-',
      'handoffId', hid)
  end
  local was_for = h.assignee or pick(K('task:', h.task), 'assignee').assignee or ''
  local is_for = ARGV[6] ~= '' and ARGV[6] or was_for
  if h.claimed ~= by or is_for ~= was_for then -- @assigns-again
    local was_by = h.claimed
    put(h, 'claimed', by, 'claimed_at', RAW)
    if is_for ~= was_for then put(h, 'assignee', is_for) end
    emit('handoff.claimed', { task = h.task, actor = by }, '{"state":"handoff","handoffId":' .. quote(hid) ..
      ',"before":{"claimedBy":' .. quote(was_by) .. ',"assignee":' .. quote(was_for) ..
      '},"after":{"claimedBy":' .. quote(by) .. ',"assignee":' .. quote(is_for) .. '}}')
  end
  remember(key, body, hid, DAY)
end
save()
local tid = call('HGET', K('handoff:', hid), 'task')
if not tid then return refuse('not_found', 'kind', 'hand-off') end -- deleted since it was claimed
local handoff = handoff_view(hid)
return named{ raw = RAW, now = NOW, row = named{
  handoff = handoff, report = call('LINDEX', K('reports:', tid), -1), spec = call('GET', K('spec:', tid)) } }
