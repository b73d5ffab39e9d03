-- needs: client create fence money nudge queue quota toolcalls unread
-- reads: task 1, run 2, deadlines 1
-- delegate makes a subtask of a task whose lease goes on, with an envelope out
-- of the caller's. The same key again answers the same subtask.
-- ARGV: task, run, secret, presented token, request id or '', content hash, the
--   call in words, deepest level, most subtasks, most in a tree,
--   then the subtask's spec (25 values), most tasks in the queue of its pool (0 refuses nothing),
--   1 if the instance that it is for takes no new ones
-- Reply: task (the subtask), state, available (tokens and nano-dollars left to the caller), nudge (JSON or ''),
--   unread
-- Errors: those of fenced; idempotency_conflict, delegation_limit,
--   too_many_lanes, budget_exceeded, quota_exceeded, agent_draining
local tid, rid, req, hash = ARGV[1], ARGV[2], ARGV[5], ARGV[6]
local t, r, deadline, err = fenced(tid, rid, ARGV[3], ARGV[4])
if err then return err end
local s = read_spec(11)
s.parent = tid

local function answer(state, nudge)
  local free_t, free_u = free_amount(envelope(tid))
  return named{ task = s.id, state = state, available = { F(free_t), F(free_u) }, nudge = nudge,
    unread = unread_of(tid, r) }
end

local was = pick(K('task:', s.id), 'state', 'parent', 'made')
if was.state then
  if was.parent ~= tid or was.made ~= hash then return refuse('idempotency_conflict') end -- @same-delegation
  return answer(was.state, nudge_for_call(r, req))
end
if ARGV[37] == '1' then return refuse('agent_draining') end -- @closed-instance-for-peers
pick(t[1], 'depth')
if num(t.depth) >= num(ARGV[8]) then return refuse('delegation_limit', 'limit', ARGV[8], 'of', 'depth') end
if num(t.delegated) >= num(ARGV[9]) then return refuse('delegation_limit', 'limit', ARGV[9], 'of', 'subtasks') end
local no = check_quota('subtasks', num(ARGV[10]), subtasks_in_tree(root_of(tid, t)), 1)
if no then return no end
if not lane_available(s.lane) then return refuse('too_many_lanes', 'limit', MAX_LANES) end
no = check_pool_queue(s.lane, num(ARGV[36])) -- @bounds-queue-for-peers
if no then return no end
no = check_covered(s) -- @carved-is-covered
if no then return no end

deadline = confirm_lease(tid, r, deadline)
-- No two calls are the same one: how many there may be is bounded otherwise.
local nudge = note_tool_call(tid, rid, t, r, deadline, 'delegate_subtask ' .. s.id, ARGV[7], req, req)
local child = create_task(s, nil)
put(child, 'made', hash)
return answer('queued', nudge)
