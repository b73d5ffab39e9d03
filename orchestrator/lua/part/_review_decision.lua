-- needs: review_digest create facts queue money close_task
-- What a reviewer decides: a person, or the run that delegated the task.

-- open_parent names the parent that a repair or a repeat of a task still has.
local function open_parent(t)
  if not t.parent then return nil end
  local p = pick(K('task:', t.parent), 'state', 'root')
  if p.state and not TERMINAL[p.state] and not cancelled_ancestor(p) then return t.parent end
end

-- fit_envelope cuts the envelope of a fix task down to what its parent can still give, because a
-- rejection is not refused for lack of money.
local function fit_envelope(s)
  local e = envelope(s.parent)
  local free_t, free_u = free_amount(e)
  s.tokens = F(math.max(0, math.min(num(s.tokens), free_t)))
  s.nano = F(math.max(0, math.min(num(s.nano), free_u))) -- @repair-fits
end

-- record_review closes a task in review and makes fix, the task that repairs it.
local function record_review(id, t, decision, note, by, fix)
  local to = decision == 'approve' and 'completed' or 'rejected'
  local digest = review_digest(t)
  call('HSET', K('review:', id), 'run', t.run, 'decision', decision, 'note', note, 'by', by, 'at', RAW,
    'fix', fix and fix.id or '', 'digest', digest)
  close_task(id, t, to)
  local kind = decision == 'approve' and 'task.approved' or 'task.rejected'
  emit(kind, { task = id, run = t.run, token = t.token, actor = by }, '{"state":' .. quote(to) ..
    ',"note":' .. quote(note) .. ',"digest":' .. quote(digest) .. before_after('state', 'review', to) ..
    ',"fixTaskId":' .. (fix and quote(fix.id) or 'null') .. task_facts(id) .. '}')
  if not fix then return end
  if fix.parent then fit_envelope(fix) end
  create_task(fix, last_open_run(t), ',"fixes":' .. quote(id))
end
