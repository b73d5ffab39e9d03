-- needs: agent session wake
-- command_result stores what became of a prompt: that the agent works on it, a piece of the answer, or how
-- it has ended. The same again changes nothing.
-- ARGV: agent, actor, operator 0|1, incarnation, prompt, state, reason, piece of the answer, byte at which
--   the piece begins, most bytes of an answer, hash of the session capability of the prompt or ''
-- Reply: next 0|1 (the session takes a task now)
-- Errors: not_found, forbidden, agent_gone, judge_due, state_conflict (it has ended otherwise, the piece
--   begins behind what is known, or the prompt has another capability)
local id, pid, to = ARGV[1], ARGV[5], ARGV[6]
local a = read_agent(id)
local no = sessions.check_adapter(a, ARGV[2], ARGV[3], ARGV[4])
if no then return no end -- @result-refused
local p = pick(K('prompt:', pid), 'session', 'agent', 'state', 'reason', 'due', 'answer', 'wake', 'wake_due',
  'capability', 'next')
local function taken() return named{ next = to == 'answered' and p.next == '1' and 1 or 0 } end -- @answered-takes-turn
if p.agent ~= id then return refuse('not_found', 'kind', 'prompt') end -- @own-prompt
local state = sessions.overdue_state(p) or p.state
if state == to and to ~= 'accepted' then return taken() end -- @same-result
if state ~= 'queued' and state ~= 'accepted' then -- @result-is-last
  return refuse('state_conflict.wrong_state', 'state', state, 'need', 'queued')
end
if ARGV[11] ~= '' then
  local other = p.capability and p.capability ~= ARGV[11]
  if other then return refuse('state_conflict.other_capability') end -- @first-capability
  if not p.capability then put(pick(K('asession:', p.session), 'agent'), 'accepted', pid) end -- @capability-of-last
  put(p, 'capability', ARGV[11])
end
local have = p.answer or ''
if num(ARGV[9]) > #have then return refuse('state_conflict.answer_piece', 'bytes', F(#have)) end -- @no-gap
local known = #have - num(ARGV[9]) -- bytes of the piece that are there already
if string.sub(have, num(ARGV[9]) + 1, num(ARGV[9]) + #ARGV[8]) ~= string.sub(ARGV[8], 1, known) then -- @same-piece
  return refuse('state_conflict.other_piece', 'bytes', F(#have))
end
local answer = have .. string.sub(ARGV[8], known + 1) -- @adds-piece
answer = string.sub(answer, 1, sessions.character_at(answer, num(ARGV[10]))) -- @cuts-answer
if #answer > #have then put(p, 'answer', answer) end
local takes = not p.wake or to == 'accepted' or to == 'answered' -- the agent has not seen another wake
if p.state == 'queued' and takes then
  put(p, 'state', 'accepted', 'accepted', RAW)
  if p.wake then wakes.settle(pid, p, true) end -- @commits-wake
  call('ZREM', K('ready-prompts:', id), pid) -- @takes-prompt
end
if to ~= 'accepted' then
  sessions.end_prompt(pid, p, to, ARGV[7])
  if to == 'answered' and p.next == '1' then sessions.begin_turn(p.session, pid, id) end -- @begins-turn
  sessions.offer_next(p.session, id) -- @next-prompt
else
  wake('prompt ' .. pid)
end
return taken()
