-- What the second of two people is told: who has decided what, and when.

-- escape_text is the beginning of a free text, without blanks, for a refusal.
local function escape_text(s)
  return (string.gsub(string.sub(s or '', 1, 2000), '[^%w_.-]', function(c)
    return string.format('%%%02X', string.byte(c))
  end))
end

-- refuse_as_second names who was first: a key also by its name.
local function refuse_as_second(code, by, ...)
  return refuse(code, 'by', by or '-', 'byName', escape_text(by and call('HGET', K('key:', by), 'name') or ''), ...)
end

-- refuse_closed_task is the refusal of a decision about a task that is closed.
local function refuse_closed_task(id, t)
  local r = call('HMGET', K('review:', id), 'decision', 'by', 'at', 'note', 'fix')
  if r[1] then
    return refuse_as_second('task_closed', r[2], 'state', t.state, 'decision', r[1], 'at', r[3],
      'note', escape_text(r[4]), 'fixTaskId', r[5])
  end
  local by = pick(t[1], 'closed_by', 'updated', 'reason').closed_by
  if not by then return refuse('task_closed', 'state', t.state) end
  return refuse_as_second('task_closed', by, 'state', t.state,
    'decision', t.state == 'completed' and 'finish' or 'cancel', 'at', t.updated,
    'reason', escape_text(t.reason or ''))
end

-- refuse_cancelled_tree is that of one about a task below a cancelled one, which nobody has
-- come to yet.
local function refuse_cancelled_tree(t)
  local top = cancelled_ancestor(t)
  local at, by = string.match(call('HGET', K('tree:', t.root), top), '^(%d+) (.+)$')
  return refuse_as_second('task_closed', by, 'state', 'cancelled', 'decision', 'cancel', 'at', at or '-',
    'reason', escape_text('cancelled with ' .. top))
end

-- refuse_closed_handoff is that of one about a hand-off, whose task may have gone on.
local function refuse_closed_handoff(h, t)
  local code = (TERMINAL[t.state] or cancelled_ancestor(t)) and 'task_closed' or 'state_conflict.decided'
  local decision = h.state == 'answered' and 'answer' or h.state == 'finished' and 'finish' or 'cancel'
  return refuse_as_second(code, h.by, 'state', TERMINAL[t.state] and t.state or h.state, 'need', 'open',
    'decision', decision, 'at', h.closed or '-', 'answer', escape_text(h.said))
end
