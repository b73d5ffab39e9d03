-- flags: allow-oom
-- needs: fence touch
-- reads: task 1, run 2, deadlines 1
-- reclaim gives the holder of a lease from before an adoption a token above the
-- floor and a full window. A lease above it is left as it is, so a repeat
-- changes nothing.
-- ARGV: task, run, secret, presented token
-- Reply: {raw ms, ttl ms, token}
-- Errors: those of fenced except for reclaim_required
local tid, rid = ARGV[1], ARGV[2]
local t, r, deadline, err = fenced(tid, rid, ARGV[3], ARGV[4], true)
if err then return err end
if num(r.token) <= floor then -- @reclaims-once
  local token = F(floor + 1) -- @reclaim-token
  deadline = math.max(deadline, now + num(r.window)) -- @reclaim-time
  call('ZADD', K('deadlines'), F(deadline), tid)
  put(t, 'token', token) -- @reclaim-of-task
  touch(tid, t)
  -- What the holder shows stays good for this lease, also if a lost store granted it.
  local shown = F(num(ARGV[4])) .. ','
  local new = shown ~= '0,' and not string.find(r.tokens, ',' .. shown, 1, true)
  put(r, 'token', token, 'tokens', r.tokens .. (new and shown or '') .. token .. ',', 'confirmed', '1')
  emit('lease.reclaimed', { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid },
    '{"state":"leased"}')
end
return { RAW, F(deadline - now), r.token }
