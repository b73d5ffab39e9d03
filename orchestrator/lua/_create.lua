-- Creating a task: submit, the fix of a rejection and the retry of a closed
-- task share it. A specification is a flat list of FIELDS values in ARGV.
local FIELDS = { 'id', 'lane', 'pri', 'window', 'max_attempts', 'backoff', 'retry_on', 'escalate', 'review',
  'not_before', 'role', 'labels', 'fixes', 'retries', 'by', 'spec', 'input' }

local function read_spec(first)
  local s = {}
  for i, name in ipairs(FIELDS) do s[name] = ARGV[first + i - 1] end
  return s
end

-- indexes calls f with every list key the task stands in beside its state.
local function indexes(role, labels, f)
  f(K('tasks'))
  if role ~= '' then f(K('by-role:', role)) end
  for label in string.gmatch(labels, '[^\n]+') do f(K('by-label:', label)) end
end

-- create writes a new queued task. source is the run whose process must be
-- gone first when this task repairs or repeats another, else nil.
local function create(s, source, extra)
  local order = F(call('HINCRBY', META, 'order', 1))
  local t = { state = '', order = order, pri = s.pri, lane = s.lane, at = '' }
  call('HSET', K('task:', s.id), 'token', '0', 'attempt', '0', 'failures', '0', 'run', '', 'handoff', '',
    'order', order, 'created', F(raw), 'lane', s.lane, 'at', '', 'pri', s.pri, 'window', s.window,
    'max_attempts', s.max_attempts, 'backoff', s.backoff, 'retry_on', s.retry_on, 'escalate', s.escalate,
    'review', s.review, 'by', s.by, 'fixes', s.fixes, 'retries', s.retries, 'role', s.role)
  if s.labels ~= '' then call('HSET', K('task:', s.id), 'labels', s.labels) end
  call('SET', K('spec:', s.id), s.spec)
  if s.input ~= '' then call('SET', K('in:', s.id), s.input) end
  indexes(s.role, s.labels, function(key) call('ZADD', key, order, s.id) end)
  move(s.id, t, 'queued')
  local ready = 0
  if num(s.not_before) > raw then
    ready = now + num(s.not_before) - raw
    call('HSET', K('task:', s.id), 'not_before', s.not_before)
    call('ZADD', K('starts'), s.not_before, s.id)
  end
  enqueue(s.id, t, ready, source)
  emit('task.submitted', { task = s.id, actor = s.by }, '{"state":"queued"' .. (extra or '') .. '}')
end
