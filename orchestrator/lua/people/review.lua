-- needs: conflicts create queue review_decision review_digest view
-- essential
-- review decides a completed task; a rejection may create the task that fixes
-- it in the same step.
-- alone
-- ARGV: task, decision (approve|reject), actor, request key, body hash, note,
--   digest of what was shown or '', fix 0|1, then the fix task's spec (25 values)
-- Reply: fix (id of the fix task or ''), task (a task_view)
-- Errors: not_found, task_closed, state_conflict, version_conflict and precondition_required (the digest),
--   too_many_lanes, idempotency_conflict, budget_exceeded (the house)
local tid, decision, by, key, body = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local was, err = find_request(key, body)
if err then return err end
if was then
  local shown = task_view(tid)
  return shown.err and shown or named{ fix = was ~= '-' and was or '', task = shown } -- it can have been deleted since
end
local t = load(K('task:', tid))
if not t then return refuse('not_found', 'kind', 'task') end
if TERMINAL[t.state] then return refuse_closed_task(tid, t) end
if cancelled_ancestor(t) then return refuse_cancelled_tree(t) end
if t.state ~= 'review' then -- @in-review
  return refuse('state_conflict.wrong_state', 'state', t.state, 'need', 'review')
end
local stale = check_digest(tid, t, ARGV[7])
if stale then return stale end -- @person-saw-it
local fix
if ARGV[8] == '1' then
  fix = read_spec(9)
  if not lane_available(fix.lane) then return refuse('too_many_lanes', 'limit', MAX_LANES) end
  fix.parent = open_parent(t)
  local no = not fix.parent and check_covered(fix, tid)
  if no then return no end
end
record_review(tid, t, decision, ARGV[6], by, fix)
remember(key, body, fix and fix.id or '-', DAY)
return named{ fix = fix and fix.id or '', task = task_view(tid, false, 0) }
