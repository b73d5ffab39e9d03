-- needs: money queue charge index_keys
-- Creating a task: submit, the fix of a rejection and the retry of a closed
-- task share it. A specification is a list of 25 values in ARGV.
local function read_spec(first)
  local a = ARGV
  return { id = a[first], lane = a[first + 1], pri = a[first + 2], window = a[first + 3], max_attempts = a[first + 4],
    backoff = a[first + 5], retry_on = a[first + 6], escalate = a[first + 7], review = a[first + 8],
    not_before = a[first + 9], role = a[first + 10], labels = a[first + 11], fixes = a[first + 12],
    retries = a[first + 13], by = a[first + 14], spec = a[first + 15], input = a[first + 16], tokens = a[first + 17],
    nano = a[first + 18], house = a[first + 19], assignee = a[first + 20], client = a[first + 21],
    context = a[first + 22], instance = a[first + 23], instance_number = a[first + 24] }
end

-- payer names the envelope that a new task's is carved from: that of its
-- parent, or the day's envelope. check_covered is the refusal where that has too little,
-- with what the task that ending names gives back before.
local function payer(s) return s.parent or day_envelope(s.house) end

local function check_covered(s, ending)
  local from = payer(s)
  return from ~= '' and check_funds(from, num(s.tokens), num(s.nano), ending and envelope(ending)) or nil
end

-- attach_to_parent notes where in its tree a new subtask stands: its ancestors are
-- root, those of up1 to up3 and parent. Two ids are what a field has room for. It returns
-- the assignee of the parent.
local function attach_to_parent(t, s)
  local p = pick(K('task:', s.parent), 'root', 'parent', 'depth', 'up1', 'up2', 'up3', 'delegated', 'assignee')
  put(t, 'root', p.root or s.parent, 'parent', s.parent, 'depth', F(num(p.depth) + 1))
  local between = {}
  for _, part in ipairs({ p.up1 or '', p.up2 or '', p.up3 or '' }) do
    for id in string.gmatch(part, '%S+') do between[#between + 1] = id end
  end
  if p.parent and p.parent ~= p.root then between[#between + 1] = p.parent end
  for i = 1, #between, 2 do put(t, 'up' .. F((i + 1) / 2), table.concat(between, ' ', i, math.min(i + 1, #between))) end
  -- What replaces a subtask is not one more.
  if s.fixes == '' and s.retries == '' then put(p, 'delegated', F(num(p.delegated) + 1)) end
  call('HINCRBY', K('tree:', t.root), 'open', 1)
  call('HINCRBY', K('tree:', t.root), 'made', 1) -- @counts-subtasks
  return p.assignee
end

-- with_trace gives the spec of a task that repairs another the trace of that one,
-- unless it has its own. Strings are all there is in a trace, so nothing is lost.
local function with_trace(spec, of)
  local theirs = cjson.decode(call('GET', K('spec:', of)) or '{}').trace
  if not theirs or cjson.decode(spec).trace then return spec end
  return string.sub(spec, 1, -2) .. ',"trace":' .. cjson.encode(theirs) .. '}'
end

-- create_task writes a new queued task. source is the run whose process must be
-- gone first when this task repairs or repeats another, else nil.
local OPTIONAL = { 'labels', 'fixes', 'retries', 'assignee', 'client', 'context', 'instance', 'instance_number' }
local function create_task(s, source, extra)
  local order = F(num(meta.order) + 1)
  meta.order = order
  local t = new_record(K('task:', s.id), { token = '0', run = '', order = order, attempt = '0', lane = s.lane,
    pri = s.pri, window = s.window, review = s.review, failures = '0', handoff = '', created = RAW,
    max_attempts = s.max_attempts, backoff = s.backoff, retry_on = s.retry_on, escalate = s.escalate, by = s.by,
    role = s.role, at = '' })
  local spec = s.fixes ~= '' and with_trace(s.spec, s.fixes) or s.spec
  if s.parent then
    local theirs = attach_to_parent(t, s)
    if s.assignee == '' and theirs then -- @inherits-assignee
      s.assignee, spec = theirs, string.sub(spec, 1, -2) .. ',"assignee":' .. cjson.encode(theirs) .. '}'
    end
    extra = (extra or '') .. ',"parent":' .. quote(s.parent)
  end
  if s.labels .. s.fixes .. s.retries .. s.assignee .. s.client ~= '' then
    for _, field in ipairs(OPTIONAL) do
      if s[field] and s[field] ~= '' then put(t, field, s[field]) end
    end
  end
  call('SET', K('spec:', s.id), spec)
  if s.input ~= '' then call('SET', K('in:', s.id), s.input) end
  for _, key in ipairs(index_keys(s)) do call('ZADD', key, order, s.id) end
  local from = payer(s)
  carve(from, s.id, order, s.tokens, s.nano)
  move(s.id, t, 'queued')
  local ready = 0
  if num(s.not_before) > raw then
    ready = now + num(s.not_before) - raw
    put(t, 'not_before', s.not_before)
    call('ZADD', K('starts'), s.not_before, s.id)
  end
  inherit_calls(t, s.retries ~= '' and s.retries or s.fixes)
  enqueue(s.id, t, ready, source)
  emit('task.submitted', { task = s.id, actor = s.by }, '{"state":"queued"' .. (extra or '') ..
    ',"before":null,"after":{"state":"queued"}}')
  if from ~= '' then warn_budget(from, envelope(from)) end
  return t
end
