-- needs: answer close_task facts handoff view
-- essential
-- finish completes a parked task with a person's own output.
-- alone
-- ARGV: hand-off, actor, request key, body hash, output JSON {output, summary},
--   the output in a few words
-- Reply: view of the task
-- Errors: not_found, state_conflict, task_closed, idempotency_conflict
local hid, by, key, body = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local was, err = find_request(key, body)
if err then return err end
if was then return task_view(was, false, 0) end
local h, t, no = load_open_handoff(hid)
if no then return no end
close_handoff(hid, 'finished', by, ARGV[6])
call('SET', K('out:', h.task), ARGV[5])
close_task(h.task, t, 'completed', 'closed_by', by)
emit('task.finished', { task = h.task, actor = by }, '{"state":"completed","handoffId":' .. quote(hid) ..
  ',"output":' .. quote(ARGV[6]) .. before_after('state', 'handoff', 'completed') .. task_facts(h.task) .. '}')
remember(key, body, h.task, DAY)
return task_view(h.task, false, 0)
