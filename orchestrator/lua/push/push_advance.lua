-- flags: allow-oom
-- needs: push
-- push_advance says how far a push configuration was served under a claim, by compare-and-set on claim and cursor.
-- taken: the update was delivered, or there was nothing to deliver, and the claim goes on while there are more.
-- released: the claim is given back, for a while if there is one. failed: it is tried again after a while, and given
-- up after a day of failures that were MOST or more. gone: the receiver wants nothing any more. A configuration that
-- was given up is deleted. So is one that has delivered the last state of its task, and one whose client has no key
-- any more. The same step again changes nothing.
-- ARGV: task, id of the configuration, claim, cursor before, cursor after, outcome, ms until the next try,
--   ms a claim lasts
-- Reply: more (the claim goes on), idle (the claim is over), done (all was delivered, and it was deleted) or given_up
-- Errors: not_found, state_conflict (the claim is over)
local MOST = 20
local tid, cid, claim, from, to, outcome = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local member = tid .. ':' .. cid
local p = load(pushes.key(tid, cid))
if not p then return refuse('not_found', 'kind', 'push') end
local step = table.concat({ claim, from, to, outcome }, ' ')
if p.step == step then return p.said end -- @same-push-step
if p.claim ~= claim or p.cursor ~= from then
  return refuse('state_conflict.push_claim_over', 'kind', 'push', 'cause', 'claim_over')
end
local t = pick(K('task:', tid), 'state', 'client')

local function give_up()
  pushes.forget(tid, t, cid)
  return 'given_up'
end

if outcome == 'gone' or pushes.ended(t.client) then return give_up() end
if outcome == 'failed' then
  local failures = num(p.failures) + 1
  local failing = num(p.failing) == 0 and NOW or p.failing
  if failures >= MOST and now - num(failing) >= DAY then return give_up() end -- @gives-push-up
  put(p, 'failures', F(failures), 'failing', failing, 'claim', '', 'step', step, 'said', 'idle')
  call('ZADD', K('push-due'), F(now + num(ARGV[7])), member)
  wake('push')
  return 'idle'
end

local more = num(to) < call('LLEN', K('updates:', tid))
if not more and TERMINAL[t.state] then -- @ends-push-with-task
  pushes.forget(tid, t, cid)
  return 'done'
end
local said = more and outcome == 'taken' and 'more' or 'idle'
put(p, 'cursor', to, 'claim', said == 'more' and claim or '', 'step', step, 'said', said)
if outcome == 'taken' then put(p, 'failures', '0', 'failing', '0') end
if not more then
  call('ZREM', K('push-due'), member)
else
  call('ZADD', K('push-due'), F(now + num(said == 'more' and ARGV[8] or ARGV[7])), member)
  if said == 'idle' then wake('push') end
end
return said
