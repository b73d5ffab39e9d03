-- flags: allow-oom
-- needs: facts handoff page
-- remind writes an event for each hand-off and review that has been open for longer than a rule
-- allows: one for each rule, and none once it is decided. The queues are ordered by the instant
-- at which their entries came, and a cursor for each rule keeps how far it has come. People wait
-- by the clock on the wall, so this is the server's own clock, and not store time. A cursor also
-- keeps the instant at which it was saved. If the clock is before that, it was set back, and the
-- rule begins the queue again.
-- ARGV: limit, then for each rule: name, ms, role or '', label or '' (name=value), webhook or ''
-- Reply: number of entries looked at; fewer than limit when nothing is left
local CURSORS, MOST_CURSORS, MOST_REMINDED = K('reminders'), 64, 1024
local room, looked = num(ARGV[1]), 0

-- rule_matches reports whether a rule selects a task.
local function rule_matches(rule, t)
  if rule.role ~= '' and t.role ~= rule.role then return false end -- @reminds-role
  local labels = '\n' .. (t.labels or '') .. '\n'
  return rule.label == '' or string.find(labels, '\n' .. rule.label .. '\n', 1, true) -- @reminds-label
end

-- mark_reminded notes in the record of a hand-off or task that a rule has reminded of it. It
-- returns false if the rule had done so before.
local function mark_reminded(r, name)
  local names = pick(r[1], 'reminded').reminded or ','
  if string.find(names, ',' .. name .. ',', 1, true) then return false end -- @reminds-once
  put(r, 'reminded', string.sub(names .. name .. ',', -MOST_REMINDED))
  return true
end

-- reminder_of is what the event of a reminder is about, and what it says.
local function reminder_of(rule, state, tid, rid, since, facts)
  local agent = rid and rid ~= '' and pick(K('run:', rid), 'agent').agent or ''
  return { task = tid, run = rid, agent = agent, actor = 'server' },
    '{"state":' .. quote(state) .. ',"rule":' .. quote(rule.name) .. ',"webhook":' .. quote(rule.webhook) ..
    ',"waitedSeconds":' .. F(math.floor((raw - since) / 1000)) .. facts .. task_facts(tid) .. '}'
end

local function remind_handoff(rule, hid, since)
  local h = pick(K('handoff:', hid), 'task', 'state', 'run', 'kind', 'deadline', 'policy', 'facts', 'assignee',
    'claimed')
  local t = h.state == 'open' and pick(K('task:', h.task), 'state', 'role', 'labels')
  if not t or not rule_matches(rule, t) or cancelled_ancestor(t) or not mark_reminded(h, rule.name) then return end
  emit('handoff.reminder', reminder_of(rule, 'handoff', h.task, h.run, since, ',"claimedBy":' .. quote(h.claimed) ..
    handoff_facts(hid, h.kind, num(h.deadline), h.policy, h.facts or '') .. assignee_fact(h)))
end

local function remind_review(rule, tid, since)
  local t = pick(K('task:', tid), 'state', 'role', 'labels', 'run')
  if t.state ~= 'review' or not rule_matches(rule, t) or cancelled_ancestor(t) then return end
  if not mark_reminded(t, rule.name) then return end
  emit('review.reminder', reminder_of(rule, 'review', tid, t.run, since,
    ',"summary":' .. quote(pick(K('run:', t.run), 'said').said)))
end

-- save_cursor keeps how far a rule has come in a queue: "score instant id", where the instant is
-- that of the server's clock now. Cursors of rules that are not used any
-- more are deleted when there are many.
local function save_cursor(field, value, fields)
  if call_now('HSET', CURSORS, field, value) == 0 or call('HLEN', CURSORS) <= MOST_CURSORS then return end
  for _, old in ipairs(call('HKEYS', CURSORS)) do
    if not fields[old] then call('HDEL', CURSORS, old) end -- @bounds-cursors
  end
end

local QUEUES = {
  { K('handoffs:', 'open'), remind_handoff, 'handoff ' },
  { K('in-review'), remind_review, 'review ' },
}
local rules, fields = {}, {}
for i = 2, #ARGV, 5 do
  local rule = { name = ARGV[i], after = num(ARGV[i + 1]), role = ARGV[i + 2], label = ARGV[i + 3],
    webhook = ARGV[i + 4] }
  rules[#rules + 1] = rule
  for _, q in ipairs(QUEUES) do fields[q[3] .. rule.name .. ' ' .. rule.role .. ' ' .. rule.label] = true end
end
for _, rule in ipairs(rules) do
  local due = raw - rule.after
  for _, q in ipairs(QUEUES) do
    local key, field = q[1], q[3] .. rule.name .. ' ' .. rule.role .. ' ' .. rule.label
    local score, saved, before = string.match(call('HGET', CURSORS, field) or '', '^(%d+) (%d+) (.*)$')
    -- Entries that came after the clock was set back may be before the cursor. It is deleted even if
    -- nothing is due now, because the clock may have passed the instant by the next call.
    if saved and num(saved) > raw then -- @reminds-after-clock
      score, before = nil, nil
      call('HDEL', CURSORS, field) -- @begins-queue-again
    end
    local last
    local at = first_after(key, score or '', before or '')
    local got = room > looked and call('ZRANGE', key, at, at + room - looked - 1, 'WITHSCORES') or {}
    for i = 1, #got, 2 do
      if num(got[i + 1]) > due then break end -- @reminds-due
      looked, last = looked + 1, F(num(got[i + 1])) .. ' ' .. RAW .. ' ' .. got[i]
      q[2](rule, got[i], num(got[i + 1]))
    end
    if last then save_cursor(field, last, fields) end -- @keeps-cursor
  end
end
return looked
