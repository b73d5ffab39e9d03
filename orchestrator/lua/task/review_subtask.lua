-- needs: conflicts create fence nudge queue quota review_decision review_digest toolcalls unread view
-- reads: task 1, run 2, deadlines 1
-- review_subtask decides a subtask that was handed in to the task of a run. A
-- rejection makes, in the same step, the subtask that repairs it. The same
-- decision again gets the same answer.
-- alone
-- ARGV: task, run, secret, presented token, request id, subtask, decision
--   (approve|reject), note, the call in words, most subtasks in a tree, digest of
--   what was shown or '', then the spec of the subtask that repairs it (25 values)
-- Reply: task (a task_view of the subtask), nudge (JSON or ''), unread; or {} when this call ended the run
-- Errors: those of fenced; author_cannot_review, not_found (no subtask of this
--   task), forbidden (a person reviews it), task_closed, state_conflict, version_conflict
--   and precondition_required (the digest), too_many_lanes, quota_exceeded
local tid, rid, req, id, decision, note = ARGV[1], ARGV[2], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local t, r, deadline, err = fenced(tid, rid, ARGV[3], ARGV[4])
if err then return err end
if id == tid then return refuse('author_cannot_review') end
local c = load(K('task:', id))
if not c or c.parent ~= tid then return refuse('not_found', 'kind', 'subtask') end
if c.state ~= 'review' then
  local was = call('HMGET', K('review:', id), 'by', 'decision', 'note')
  if was[1] == rid and was[2] == decision and was[3] == note then
    return named{ task = task_view(id), nudge = nudge_for_call(r, req), unread = unread_of(tid, r) }
  end
  if TERMINAL[c.state] then return refuse_closed_task(id, c) end
  return refuse('state_conflict.wrong_state', 'state', c.state, 'need', 'review')
end
if c.review ~= 'parent' then return refuse('forbidden', 'kind', 'review') end -- @parent-may-review
local stale = check_digest(id, c, ARGV[11])
if stale then return stale end -- @parent-saw-it
local fix
if decision == 'reject' then
  fix = read_spec(12)
  fix.parent, fix.input = tid, call('GET', K('edit:', id)) or fix.input -- @repairs-edit
  local no = check_quota('subtasks', num(ARGV[10]), subtasks_in_tree(root_of(tid, t)), 1)
  if no then return no end -- @repair-refused
  if not lane_available(fix.lane) then return refuse('too_many_lanes', 'limit', MAX_LANES) end
end

deadline = confirm_lease(tid, r, deadline)
local nudge = note_tool_call(tid, rid, t, r, deadline, 'review_subtask ' .. id .. ' ' .. decision, ARGV[9], req, req)
if not nudge then return {} end
record_review(id, c, decision, note, rid, fix)
return named{ task = task_view(id), nudge = nudge, unread = unread_of(tid, r) }
