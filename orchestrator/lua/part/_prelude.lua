-- What every verb shares: moving, events.
-- The activity counters cover the last hour, in slots of two minutes of the
-- server's own clock: fields are "<slot> <figure>". The call that begins a slot
-- deletes those of another hour.
local count_activity, keep_activity, drop_activity, save_activity = (function()
  local counted -- by this verb, by figure
  local added -- to the running slot by this call, by figure
  on_call(function() added = nil end)
  local function drop_counts() counted = nil end
  local function count(figure, n)
    counted = counted or {}
    counted[figure] = (counted[figure] or 0) + n
  end

  -- keep_counts adds what the verb has counted to what the call saves.
  local function keep_counts()
    if not counted then return end
    added = added or {}
    for figure, n in pairs(counted) do added[figure] = (added[figure] or 0) + n end
    counted = nil
  end

  local function save_counts()
    if not added then return end
    local SLOT, SLOTS = 120000, 30
    local slot, begun = math.floor(raw / SLOT), false
    for figure, n in pairs(added) do
      begun = call_now('HINCRBY', K('pulse'), F(slot) .. ' ' .. figure, F(n)) == n or begun
    end
    local counts = begun and call('HGETALL', K('pulse')) or {}
    for i = 1, #counts, 2 do
      if math.abs(num(string.match(counts[i], '^%d+')) - slot) >= SLOTS then call('HDEL', K('pulse'), counts[i]) end
    end
  end
  return count, keep_counts, drop_counts, save_counts
end)()

-- save_call writes what the verbs of a call have changed and counted, and tells readers of the event log. It returns
-- a refusal if Redis has refused a write. The numbers are stored all the same: those of events that were written must
-- not be used again.
local function save_call()
  write_all()
  local was = meta and meta.read
  if was and (meta.seq ~= was.seq or meta.order ~= was.order or meta.granted ~= was.granted) then
    write('HSET', META, 'seq', meta.seq or '0', 'order', meta.order or '0', 'granted', meta.granted or '0')
    if meta.seq ~= was.seq then write('PUBLISH', K('tail'), meta.seq) end
  end
  try_write(save_activity)
  return partly_written()
end

-- deferred are functions that run in order when the verb has succeeded, before
-- its changes are written.
local deferred = {}
local function defer_nothing() deferred = {} end
local function defer(f) deferred[#deferred + 1] = f end
local function run_deferred()
  if #deferred == 0 then return end
  for _, f in ipairs(deferred) do f() end
  deferred = {}
end

local function quote(s) return cjson.encode(s or '') end

-- before_after says for an event what became another: members before and after.
local function before_after(field, from, to)
  return ',"before":{"' .. field .. '":' .. quote(from) .. '},"after":{"' .. field .. '":' .. quote(to) .. '}'
end

-- pack_event makes a field of an entry of the event log from the values of an event: the number first, then those
-- that the audit log has as fields.
local lengths = {} -- as they are written: most come again
local function length(n)
  local text = F(n) .. ':'
  lengths[n] = n <= 1024 and text or nil
  return text
end
local function pack_event(a, b, c, d, e, f, g, h, i, j, k, m)
  local l = lengths
  return (l[#a] or length(#a)) .. a .. (l[#b] or length(#b)) .. b .. (l[#c] or length(#c)) .. c ..
    (l[#d] or length(#d)) .. d .. (l[#e] or length(#e)) .. e .. (l[#f] or length(#f)) .. f ..
    (l[#g] or length(#g)) .. g .. (l[#h] or length(#h)) .. h .. (l[#i] or length(#i)) .. i ..
    (l[#j] or length(#j)) .. j .. (l[#k] or length(#k)) .. k .. (l[#m] or length(#m)) .. m
end

local emit, set_actor_is_agent = (function()
  -- AUDITED are the types of events that the audit log has a copy of: 'always', or
  -- 'person' where agents cause such events, too. picket.Audited is the same table.
  local AUDITED = {
    ['key.created'] = 'always', ['key.revoked'] = 'always', ['session.opened'] = 'always',
    ['session.closed'] = 'always', ['namespace.paused'] = 'always', ['namespace.resumed'] = 'always',
    ['webhook.created'] = 'always', ['webhook.deleted'] = 'always', ['webhook.revived'] = 'always',
    ['store.adopted'] = 'always',
    ['heartbeat_policy.written'] = 'always', ['heartbeat_policy.deleted'] = 'always',
    ['heartbeat_policy.rolled_back'] = 'always', ['agent_session.prompted'] = 'always',
    ['agent_session.stopping'] = 'always',
    ['task.submitted'] = 'person', ['task.cancelled'] = 'person', ['task.retried'] = 'person',
    ['task.approved'] = 'person', ['task.rejected'] = 'person', ['task.answered'] = 'person',
    ['task.finished'] = 'person', ['handoff.claimed'] = 'person', ['budget.topped_up'] = 'person',
    ['lease.expired'] = 'person', ['lease.released'] = 'person', ['agent.lifecycle'] = 'person',
    ['agent.command'] = 'person', ['message.sent'] = 'person', ['invariant.repaired'] = 'person', -- @audits-repair
  }

  -- COUNTED are the types of events that are counted as activity.
  local COUNTED = { ['task.review'] = 'ended', ['task.completed'] = 'ended', ['task.finished'] = 'ended',
    ['lease.failed'] = 'failed', ['lease.expired'] = 'failed', ['lease.released'] = 'failed' }

  -- actor_is_agent is true in a verb in which an agent acts for itself. The log then
  -- names it by its own id, which can be the same as that of a key.
  local actor_is_agent
  on_verb(function() actor_is_agent = false end)
  local function set_actor(is) actor_is_agent = is end

  -- audited reports whether the audit log gets a copy of an event. A person's actor
  -- is a key.
  local function audited(kind, e)
    local rule = AUDITED[kind]
    return rule == 'always' or rule == 'person'
      and not actor_is_agent and string.sub(e.actor or '', 1, 4) == 'key_' -- @audits-people
  end

  -- emit appends one event under the next number; the numbers are dense. The call writes it when it ends. data is a
  -- JSON object, more are extra fields.
  local function append_event(kind, e, data, more)
    local seq = F(num(meta.seq) + 1)
    meta.seq = seq
    log_event(pack_event(seq, kind, RAW, NOW, e.actor or '', data, e.task or '', e.run or '', e.agent or '',
      e.token or '', e.reason or '', more or ''))
    local function copy_event() -- entries with the same fields as the one before take less room and time
      call('XADD', K('audit'), seq .. '-0', 'type', kind, 'at', RAW, 'now', NOW, 'actor', e.actor or '', 'data', data,
        'task', e.task or '', 'run', e.run or '', 'agent', e.agent or '', 'token', e.token or '',
        'reason', e.reason or '', 'top', more or '')
    end
    if audited(kind, e) then copy_event() end -- @copies-audit
    if COUNTED[kind] then count_activity(COUNTED[kind], 1) end
  end
  return append_event, set_actor
end)()

-- wake tells every server process that a topic changed.
local function wake(topic) call('PUBLISH', K('wake'), topic) end

-- MAX_REPLY bounds what a listing reads, in bytes: a large reply would keep
-- every other caller waiting. The first row is always given.
local MAX_REPLY = 4194304

-- add_total adds to one of the figures that are counted over the life of a namespace.
local function add_total(figure, n)
  if n ~= 0 then call('HINCRBY', K('sums'), figure, F(n)) end
end

-- key_is_live reports whether a key is neither revoked nor expired.
local function key_is_live(id)
  local k = call('HMGET', K('key:', id), 'revoked', 'expires')
  return k[1] == '0' and (k[2] == '0' or num(k[2]) > raw)
end

-- key_ended_leases reports whether the revocation of a key ended its leases. They are
-- void from that step on, although their records are ended in batches.
local function key_ended_leases(id)
  return id and id ~= '' and call('HGET', K('key:', id), 'leases') == 'ended'
end

-- has_messages reports whether the namespace has messages at all. Most have none, and then no inbox is looked at.
local has_messages, expect_messages = (function()
  local some
  on_call(function() some = nil end)
  local function has()
    if some == nil then some = call('EXISTS', K('sent')) == 1 end
    return some
  end
  return has, function() some = true end
end)()

local TERMINAL = { completed = true, rejected = true, failed = true, cancelled = true }

-- client_lists are the lists of a task that a client has submitted: those of the client and of all clients, and those
-- of the context, of the client and of all. A score is the negative instant at which the task came into its state, so
-- that the latest is first.
local function client_lists(t)
  local context = ' ' .. t.context
  return { K('by-client:', '*'), K('by-client:', t.client), K('by-context:', '*' .. context),
    K('by-context:', t.client .. context) }
end

-- updates are what the push configurations of a task send to its client. A task without configurations keeps none.
local updates = {}
function updates.wanted(t)
  return t.push == '1' -- @notes-for-push
end

-- append adds an update. A configuration that has sent all before becomes due.
function updates.append(id, update)
  call('RPUSH', K('updates:', id), update)
  for _, cid in ipairs(call('ZRANGE', K('pushes:', id), 0, -1)) do
    call('ZADD', K('push-due'), 'NX', NOW, id .. ':' .. cid) -- @makes-push-due
  end
  wake('push')
end

-- append_status adds a change of state. The result of a task comes before its last state. The run names the hand-off
-- that begins or ends.
function updates.append_status(id, t, from, to)
  if to == 'completed' then updates.append(id, 'result') end -- @result-before-end
  updates.append(id, 'status ' .. from .. ' ' .. to .. ' ' .. RAW .. ' ' .. (pick(t[1], 'run').run or ''))
end

-- move takes a task from one state set to another; further fields are written
-- with it. A task being created comes from none. A task that ends goes through
-- close_task instead. A subtask that settles makes the sessions of the agent that holds its parent due for a look of
-- the scheduler of wakes: one that has ended, or waits for a review or a person.
local function move(id, t, to, ...)
  local from = t.state
  if t.state then call('ZREM', K('by-state:', t.state), id) end -- @one-state
  call('ZADD', K('by-state:', to), t.order, id)
  if t.state == 'review' then call('ZREM', K('in-review'), id) end
  if to == 'review' then call('ZADD', K('in-review'), RAW, id) end
  put(t, 'state', to, 'updated', RAW, ...)
  if t.client then
    for _, key in ipairs(client_lists(t)) do call('ZADD', key, '-' .. RAW, id) end -- @lists-for-client
    local open = K('client-open:', t.client)
    if TERMINAL[to] then -- @ends-for-client
      call('ZREM', open, id)
    else
      call('ZADD', open, t.order, id)
    end
    if from and updates.wanted(t) then updates.append_status(id, t, from, to) end -- @notes-status
  end
  local settled = TERMINAL[to] or to == 'review' or to == 'handoff' -- @settles
  local parent = settled and pick(t[1], 'parent').parent
  local p = parent and pick(K('task:', parent), 'state', 'run')
  if not p or p.state ~= 'leased' then return end -- @settled-for-holder
  for _, sid in ipairs(call('ZRANGE', K('asessions:', pick(K('run:', p.run), 'agent').agent), 0, -1)) do
    local key = K('session-wake:', sid)
    call('HINCRBY', key, 'settled', 1) -- how many have settled
    call('HSET', key, 'settled_of', parent)
    call('PEXPIRE', key, call('HGET', key, 'keep') or '604800000') -- @forgets-settled
    call('ZADD', K('wake-due'), 'LT', NOW, sid) -- @subtask-makes-due
  end
end

-- cancelled_ancestor names the ancestor with which a task was cancelled, if there is one;
-- that voids all that is below it at once. What is cancelled itself reports it.
local function cancelled_ancestor(t)
  if not t.root then return nil end
  pick(t[1], 'parent', 'up1', 'up2', 'up3')
  local path = { t.root, t.parent }
  for _, part in ipairs({ t.up1 or '', t.up2 or '', t.up3 or '' }) do
    for id in string.gmatch(part, '%S+') do path[#path + 1] = id end
  end
  for i, cancelled in ipairs(call('HMGET', K('tree:', t.root), unpack(path))) do
    if cancelled then return path[i] end
  end
end

-- find_request finds the record of a request made before. It returns the recorded
-- answer, or an error when the same key came with another body.
local function find_request(key, body) -- @finds-request
  if key == '' then return nil end
  local was = call('GET', K('req:', key))
  if not was then return nil end
  if string.sub(was, 1, 64) ~= body then return nil, refuse('idempotency_conflict') end -- @same-body
  return string.sub(was, 66)
end

-- remember records the answer of a request for ms milliseconds. This is the
-- life of a record, never of a lease.
local function remember(key, body, answer, ms)
  if key ~= '' then call('SET', K('req:', key), body .. ' ' .. answer, 'PX', F(ms)) end -- @remembers-request
end
local DAY = 86400000
-- GRACE is how long after an adoption a holder may reclaim its lease, in ms of
-- store time.
local GRACE = 30000
