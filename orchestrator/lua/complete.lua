-- flags: allow-oom
-- needs: fence end
-- complete ends the lease with an output: the task goes to review, or is
-- completed when nobody reviews it. A repeat gets the same answer.
-- ARGV: task, run, secret, presented token, content hash, output JSON {output, summary}
-- Reply: state
-- Errors: those of fenced
local tid, rid = ARGV[1], ARGV[2]
local t, r, deadline, err = fenced(tid, rid, ARGV[3], ARGV[4])
if err then return told(tid, rid, ARGV[3], 'complete', ARGV[5]) or err end
end_lease(tid, rid, 'completed', 'success', admitted(r, deadline))
call('SET', K('out:', tid), ARGV[6])
local state = t.review == 'none' and 'completed' or 'review'
move(tid, t, state)
put(r, 'closed', 'complete:' .. ARGV[5] .. ' ' .. state)
emit('task.' .. state, { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid },
  '{"state":' .. quote(state) .. '}')
return state
