-- flags: allow-oom
-- needs: charge end_lease facts fence handoff money
-- reads: task 1, run 2, deadlines 1
-- request_help ends the lease and parks the task until a person acts. A repeat
-- gets the same answer.
-- ARGV: task, run, secret, presented token, content hash, kind, question JSON
--   {question, options}, deadline ms from now or 0, deadline policy, question and options as
--   events tell them
-- Reply: hand-off id
-- Errors: those of fenced
local tid, rid = ARGV[1], ARGV[2]
local t, r, deadline, err = fenced(tid, rid, ARGV[3], ARGV[4])
if err then return repeated_answer(tid, rid, ARGV[3], 'request_help', ARGV[5]) or err end
end_lease(tid, rid, 'released', 'released', confirmed_deadline(r, deadline))
local due = num(ARGV[8])
if due > 0 then due = now + due end
local hid, facts = create_handoff(tid, t, rid, ARGV[6], ARGV[7], due, ARGV[9], ARGV[10])
move(tid, t, 'handoff')
put(r, 'closed', 'request_help:' .. ARGV[5] .. ' ' .. hid)
if ARGV[6] == 'budget' then -- @asks-for-amount
  local e = envelope(tid)
  local need_t, need_u = refused_need(e, rid)
  facts = facts .. ',"need":' .. amount_json(need_t, need_u) .. spending_facts(e)
end
emit('task.handoff', { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid },
  '{"state":"handoff"' .. facts .. task_facts(tid) .. '}')
return hid
