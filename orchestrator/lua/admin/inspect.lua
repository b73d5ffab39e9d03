-- flags: allow-oom
-- needs: agent check_agent check_message check_money check_session check_session_money check_task findings queue
-- inspect holds the next batch of a namespace against its invariants and
-- repairs what is safe to repair. What lives is walked apart from the archive,
-- so that a lost deadline is found soon, however much has ended.
-- alone
-- ARGV: actor, repair 0|1, limit, walk (live|rest: from where the last call of
--   that walk stopped; '': all, from the cursor), cursor of the reply before or ''
-- Reply: next (cursor, '' at the end), checked (members looked at), findings: kind, subject, detail, repaired,
--   told (1 when an event was written)
local limit, walk = num(ARGV[3]), ARGV[4]
local LIVE = { 'by-state:leased', 'deadlines', 'by-state:queued', 'delayed', 'starts', 'by-state:handoff',
  'handoffs:open', 'by-state:review', 'lanes', 'holds', 'prompt-envelopes', 'silence', 'roster:active',
  'roster:unhealthy', 'roster:draining', 'asessions', 'wake-due', 'push-due' }
local SETS = { unpack(LIVE) }
for _, set in ipairs({ 'tasks', 'terminal', 'by-state:completed', 'by-state:rejected', 'by-state:failed',
    'by-state:cancelled', 'houses', 'roster:dead', 'roster:deregistered', 'pools', 'pools:names', 'audit', 'keys',
    'sent', 'inboxes:tasks' }) do
  SETS[#SETS + 1] = set
end
for _, s in ipairs(STATUSES) do SETS[#SETS + 1] = 'inboxes:roster:' .. s end
-- A task in one of these, in such a state, is examined with another set.
local ELSEWHERE = { deadlines = { leased = true }, delayed = { queued = true }, starts = { queued = true },
  terminal = TERMINAL, ['by-state:completed'] = TERMINAL, ['by-state:rejected'] = TERMINAL,
  ['by-state:failed'] = TERMINAL, ['by-state:cancelled'] = TERMINAL }
local looked = 0

local function orphan(set, id)
  return report_violation('entry_orphaned', id, 'it stands in ' .. set .. ', but there is no record of it', function()
    call('ZREM', K(set), id)
  end)
end

-- visit looks at one member of a set; lane is the lane that the set is, if any.
local function visit(set, id, lane)
  local t = load(K('task:', id))
  if not t then
    if orphan(set, id) and lane then check_lane_head(lane, true) end
  elseif lane then
    if t.state ~= 'queued' or t.at ~= lane then check_task(id, t) end
    if t.lane ~= lane and t.at ~= lane then check_in_lane(lane, id, false) end
  elseif not (ELSEWHERE[set] and ELSEWHERE[set][t.state]) then
    check_task(id, t)
  end
end

local function visit_handoff(set, id)
  local h = call('HMGET', K('handoff:', id), 'task', 'state')
  if not h[1] then return orphan(set, id) end
  local t = call('HMGET', K('task:', h[1]), 'state', 'handoff')
  if h[2] ~= 'open' then
    check_member('handoff', K(set), id, false)
  elseif t[1] ~= 'handoff' or t[2] ~= id then
    report_violation('handoff_open', id, 'its task ' .. h[1] .. ' is ' .. (t[1] or 'gone') ..
      ' and does not wait for it')
  end
end

-- An agent that is judged is examined with those who are.
local function visit_agent(set, id)
  local a = load(K('agent:', id))
  if not a then return orphan(set, id) end
  if set == 'silence' or GONE[a.status] or not call('ZSCORE', K('silence'), id)
      or set ~= 'roster:' .. (a.status or '') then
    check_agent(id, a)
  end
end

-- A pool that counts agents is looked at with the others.
local function visit_name(_, role)
  if not call('HGET', K('pools'), role) then check_pool(role, '0') end
end

local LOOK = { ['pools:names'] = visit_name, ['handoffs:open'] = visit_handoff, holds = check_reservation,
  houses = check_session_day, ['prompt-envelopes'] = check_prompt_envelope, silence = visit_agent }
function LOOK.sent(set, id)
  local m = pick(K('message:', id), 'read', unpack(MESSAGE))
  if m.to or m.number then check_message(id, m) else orphan(set, id) end
end
function LOOK.asessions(set, id)
  local s = pick(K('asession:', id), 'ended', 'stop', unpack(SESSION))
  if s.agent or s.number then check_session(id, s) else orphan(set, id) end
end
LOOK['wake-due'] = function(set, id)
  local s = call('HMGET', K('asession:', id), 'agent', 'ended')
  if not s[1] then orphan(set, id) end
  if s[1] and s[2] then check_member('session', K(set), id, false) end
end
LOOK['push-due'] = function(set, member)
  if call('EXISTS', K('push:', member)) == 0 then orphan(set, member) end
end
for _, s in ipairs(STATUSES) do LOOK['roster:' .. s] = visit_agent end

-- scan visits about as many members as are left of the limit.
local function scan(set, pos, lane)
  local got = call('ZSCAN', K(set), pos, 'COUNT', math.max(1, limit - looked))
  local look = LOOK[set] or visit
  for i = 1, #got[2], 2 do look(set, got[2][i], lane) end
  looked = looked + #got[2] / 2
  return got[1]
end

-- scan_lanes goes through the lanes by name: those after lane, or on with lane
-- itself where pos is not 0. It returns nil at the end.
local function scan_lanes(pos, lane)
  local names = call('ZRANGE', K('lanes'), 0, 2 * MAX_LANES)
  table.sort(names)
  for _, name in ipairs(names) do
    if name > lane or name == lane and pos ~= '0' then
      if name ~= lane then pos, lane = '0', name end
      check_lane_head(lane)
      pos = scan('lane:' .. lane, pos, lane)
      looked = looked + 1
      if pos ~= '0' or looked >= limit then return pos, lane end
    end
  end
end

-- scan_keys goes through the leases that are listed with keys, the oldest key
-- first: those of the keys after last, or on with last itself where pos is not 0.
-- last is the score of a key in keys, and its id. It returns nil at the end.
local function scan_keys(pos, last)
  local from, at = string.match(last, '^(%d+) (.*)$')
  local rows = call('ZRANGEBYSCORE', K('keys'), from or '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, limit + 100)
  for i = 1, #rows, 2 do
    local id, score = rows[i], rows[i + 1]
    if score ~= from or id > at or id == at and pos ~= '0' then -- @scans-keys
      if id ~= at then pos, last = '0', score .. ' ' .. id end
      local got = call('ZSCAN', K('leases-of:', id), pos, 'COUNT', math.max(1, limit - looked))
      for j = 1, #got[2], 2 do check_listed_lease(id, got[2][j]) end
      pos, looked = got[1], looked + #got[2] / 2 + 1
      if pos ~= '0' or looked >= limit then return pos, last end
    end
  end
end

-- scan_inboxes looks at inboxes of a set, after a score or an id. It returns nil at the end.
local function scan_inboxes(set, last)
  local by, first, most = 'BYLEX', '-', '+'
  if set == 'tasks' then by, first, most = 'BYSCORE', '-inf', '+inf' end
  if last ~= '' then first = '(' .. last end -- @scans-inboxes
  for _, id in ipairs(call('ZRANGE', K(set), first, most, by, 'LIMIT', 0, limit)) do
    last = by == 'BYLEX' and id or call('ZSCORE', K(set), id)
    looked = looked + 1 + check_unread(id)
    if looked >= limit then return last end
  end
end

-- Pools are far fewer than their agents, so they are looked at all at once.
local function visit_pools()
  local flat = call('HGETALL', K('pools'))
  for i = 1, #flat, 2 do check_pool(flat[i], flat[i + 1]) end
  looked = looked + #flat / 2
end

-- is_copy reports whether a row of the audit log is a copy of an event of an entry of the event log. An entry of an
-- earlier version has the same fields as the row. Any other one has packed events, and its id is the number of the
-- last of them.
local function is_copy(row, entry)
  if entry[2][1] ~= '1' then
    return entry[1] == row[1] and table.concat(entry[2], '\0') == table.concat(row[2], '\0')
  end
  local seq = string.match(row[1], '^(%d+)-0$')
  local names, values = {}, { seq }
  for i = 1, #row[2], 2 do
    names[#names + 1], values[#values + 1] = row[2][i], row[2][i + 1]
  end
  local behind = num(string.match(entry[1], '^%d+')) - num(seq)
  return seq and table.concat(names, ' ') == 'type at now actor data task run agent token reason top'
    and entry[2][#entry[2] - 2 * behind] == pack_event(unpack(values)) -- @compares-copies
end

-- has_event reports whether an entry that ends at or above a number has the event with it.
local function has_event(entry, seq)
  return entry and num(string.match(entry[1], '^%d+')) - seq < (entry[2][1] == '1' and #entry[2] / 2 or 1)
end

-- visit_audit holds the next rows of the audit log, after the number pos, against
-- the events that they are copies of, as long as the event log has these. It
-- returns the number to go on after, '0' at the end.
local function visit_audit(pos)
  local rows = call('XRANGE', K('audit'), F(num(pos) + 1), '+', 'COUNT', math.max(1, limit - looked))
  local trimmed = num(call('HGET', META, 'trimmed'))
  for _, row in ipairs(rows) do
    local seq = string.match(row[1], '^(%d+)')
    local entry = call('XRANGE', K('events'), row[1], '+', 'COUNT', 1)[1]
    if num(seq) > trimmed and not (entry and is_copy(row, entry)) then
      report_violation('audit_differs', seq, has_event(entry, num(seq)) and 'it is not a copy of event ' .. seq or
        'the event log has no event ' .. seq)
    end
    pos = seq
  end
  looked = looked + #rows
  return looked < limit and '0' or pos
end

local cursor = walk == '' and ARGV[5] or call('HGET', META, 'inspect_' .. walk) or ''
local at, pos, lane = string.match(cursor, '^(%d+) (%d+) (.*)$')
at = num(at or (walk == 'rest' and #LIVE + 1 or 1))
pos, lane = pos or '0', lane or ''
local last = walk == 'live' and #LIVE or #SETS
while at <= last and looked < limit do
  local done
  if SETS[at] == 'lanes' then
    pos, lane = scan_lanes(pos, lane)
    done = not pos
  elseif SETS[at] == 'keys' then
    pos, lane = scan_keys(pos, lane)
    done = not pos
  elseif string.sub(SETS[at], 1, 8) == 'inboxes:' then
    lane = scan_inboxes(string.sub(SETS[at], 9), lane)
    done = not lane
  elseif SETS[at] == 'pools' then
    visit_pools()
    done = true
  elseif SETS[at] == 'audit' then
    pos = visit_audit(pos)
    done = pos == '0'
  else
    pos = scan(SETS[at], pos)
    done = pos == '0'
  end
  if done then at, pos, lane = at + 1, '0', '' end
end
cursor = at <= last and F(at) .. ' ' .. pos .. ' ' .. lane or ''
if walk ~= '' then call('HSET', META, 'inspect_' .. walk, cursor) end
return named{ next = cursor, checked = looked, findings = findings }
