-- needs: answer view
-- essential
-- answer decides a hand-off; the task is queued again with the answer in its
-- context.
-- alone
-- ARGV: hand-off, actor, request key, body hash, answer JSON, option JSON or
--   null, option text, input JSON or '', the answer in a few words
-- Reply: view of the task
-- Errors: not_found, state_conflict, task_closed, validation_failed (no such option), idempotency_conflict
local hid, by, key, body = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local was, err = find_request(key, body)
if err then return err end
if was then return task_view(was, false, 0) end
local h, t, no = load_open_handoff(hid)
if no then return no end
if ARGV[6] ~= 'null' then
  local known = false
  for _, o in ipairs(cjson.decode(h.body).options or {}) do
    if o == ARGV[7] then known = true end
  end
  if not known then return refuse('validation_failed', 'field', '/option') end
end
answer_handoff(hid, h, t, by, ARGV[5], ARGV[6], ARGV[8], ARGV[9])
remember(key, body, h.task, DAY)
return task_view(h.task, false, 0)
