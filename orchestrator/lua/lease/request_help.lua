-- flags: allow-oom
-- needs: end_lease fence handoff
-- request_help ends the lease and parks the task until a person acts. A repeat
-- gets the same answer.
-- ARGV: task, run, secret, presented token, content hash, kind, question JSON
--   {question, options}, deadline ms from now or 0, deadline policy
-- Reply: hand-off id
-- Errors: those of fenced
local tid, rid = ARGV[1], ARGV[2]
local t, r, deadline, err = fenced(tid, rid, ARGV[3], ARGV[4])
if err then return repeated_answer(tid, rid, ARGV[3], 'request_help', ARGV[5]) or err end
end_lease(tid, rid, 'released', 'released', confirmed_deadline(r, deadline))
local due = num(ARGV[8])
if due > 0 then due = now + due end
local hid = create_handoff(tid, t, rid, ARGV[6], ARGV[7], due, ARGV[9])
move(tid, t, 'handoff')
put(r, 'closed', 'request_help:' .. ARGV[5] .. ' ' .. hid)
emit('task.handoff', { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid },
  '{"state":"handoff","handoffId":' .. quote(hid) .. ',"kind":' .. quote(ARGV[6]) .. '}')
return hid
