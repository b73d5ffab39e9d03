-- needs: money session
-- prompt_row shows a prompt and its answer from a byte on. It returns nil where there is none, and how large
-- it is.
local function prompt_row(pid, offset)
  save()
  local p = call('HMGET', K('prompt:', pid), 'session', 'state', 'reason', 'due', 'by', 'text', 'answer', 'created',
    'accepted', 'ended', 'wake', 'wake_due', 'next', 'task')
  if not p[1] then return nil, 0 end
  local state, reason = sessions.overdue_state({ state = p[2], due = p[4], wake = p[11], wake_due = p[12] })
  local e = envelope(pid)
  offset = sessions.character_at(p[7] or '', offset)
  local answer = string.sub(p[7] or '', offset + 1)
  return named{ id = pid, session = p[1], state = state or p[2], reason = reason or p[3] or '', by = p[5], text = p[6],
    answer = answer, offset = math.min(offset, #(p[7] or '')), created = p[8], accepted = p[9] or nil,
    ended = p[10] or state and RAW or nil, left = math.max(0, num(p[4]) - now),
    wake = p[11] or '', wake_left = math.max(0, num(p[12]) - now),
    next = p[13] == '1' and 1 or 0, task = p[14] or '', spent = { num(e.spent_t), num(e.spent_u) },
    reserved = F(e.closed ~= '1' and num(e.granted_u) or 0) }, #p[6] + #answer
end
