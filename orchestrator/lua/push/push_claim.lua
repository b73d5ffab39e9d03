-- flags: allow-oom
-- needs: push
-- push_claim gives one deliverer a push configuration that has something to send, for as long as a claim lasts in
-- store time. With the same claim again, as after a lost reply, it gives the same one. Without one it says when to
-- look again. One whose client has no key any more is deleted instead.
-- ARGV: claim, ms it lasts, most updates
-- Reply: wait (ms until one is due, absent if none will be); or client (its key), push (as pushes.view has it) and
--   updates: kind; of a status: from, to, at (ms), and of a hand-off that begins or ends: handoff, handoff_kind, body;
--   with kind emission: seq
local claim, life = ARGV[1], num(ARGV[2])
local claims = K('push-claim:', claim)

-- claimed is the configuration that the same claim has got before.
local function claimed()
  local member = call('GET', claims)
  if member and call('HGET', K('push:', member), 'claim') == claim then return member end
end

local member = claimed() -- @claims-push-again
if not member then
  member = call('ZRANGEBYSCORE', K('push-due'), '-inf', NOW, 'LIMIT', 0, 1)[1]
  if not member then
    local first = call('ZRANGE', K('push-due'), 0, 0, 'WITHSCORES')
    return named{ wait = first[2] and F(num(first[2]) - now) }
  end
  call('HSET', K('push:', member), 'claim', claim)
  call('ZADD', K('push-due'), F(now + life), member)
  call('SET', claims, member, 'PX', F(life))
end

local function update_view(entry)
  local kind, rest = string.match(entry, '^(%l+) ?(.*)$')
  if kind == 'emission' then return named{ kind = kind, seq = rest } end
  if kind == 'result' then return named{ kind = kind } end
  local from, to, at, run = string.match(rest, '^(%S+) (%S+) (%d+) (.*)$')
  local hid = (from == 'handoff' or to == 'handoff') and 'handoff_' .. string.sub(run, 5)
  local h = hid and call('HMGET', K('handoff:', hid), 'kind', 'body') or {}
  return named{ kind = kind, from = from, to = to, at = at, handoff = hid or nil, handoff_kind = h[1], body = h[2] }
end

local tid, cid = string.match(member, '^([^:]+):(.*)$')
local t = pick(K('task:', tid), 'client')
if pushes.ended(t.client) then
  pushes.forget(tid, t, cid)
  return named{ wait = '1' }
end
local cursor, list = num(call('HGET', K('push:', member), 'cursor')), {}
for i, entry in ipairs(call('LRANGE', K('updates:', tid), cursor, cursor + num(ARGV[3]) - 1)) do
  list[i] = update_view(entry)
end
return named{ client = pick(K('task:', tid), 'client').client, push = pushes.view(tid, cid), updates = list }
