-- Made from records.go by "make recordlua". Do not edit.
-- Records that are one string each, by the beginning of their keys and by its first four bytes. A record is a table
-- with its key at 1 and its fields by name; _store.lua explains the names that begin with "_". pack makes the string,
-- and unpack makes the record of the values that the string has. A field that is missing is false.
local packing = (function()
  -- pack makes a string of values, and unpack_values makes values of a string. A store in memory has no cmsgpack. Its
  -- strings are lists.
  local pack, unpack_values
  on_call(function()
    if pack then return end -- on a real store only
    local found, library = pcall(function() return cmsgpack end)
    if found and library then -- on a real store only
      pack, unpack_values = library.pack, library.unpack
    else -- in memory only
      pack = function(...) return cjson.encode({ ... }) end -- in memory only
      unpack_values = function(text) -- in memory only
        local values = cjson.decode(text)
        if values[1] == nil then return values end -- in memory only
        return unpack(values, 1, #values)
      end
    end
  end)

  -- set_new sets a field that was missing.
  local function set_new(r, name, value)
    rawset(r, name, value)
    if r._kind.first[name] then return end
    r._others = r._others or {}
    r._others[name] = value
  end

  -- from_map makes a record of fields by name, as strings of format 2 have them.
  local function from_map(kind, key, fields)
    local r = { key, _kind = kind, _others = false, _changed = 0, _waits = false }
    for name, value in pairs(fields) do
      if kind.first[name] then
        r[name] = value
      else
        r._others = r._others or {}
        r._others[name] = value
      end
    end
    return r
  end
  local task = {
    missing = { __newindex = set_new, __index = { _found = true,
      state = false, token = false, run = false, order = false,
      attempt = false, lane = false, pri = false, window = false, review = false, failures = false,
      handoff = false, created = false, max_attempts = false, backoff = false, retry_on = false,
      escalate = false, by = false, role = false, at = false, updated = false, pin = false, gate = false,
      reports = false, reports_size = false, root = false, parent = false, depth = false, up1 = false,
      up2 = false, up3 = false, delegated = false, client = false, context = false, instance = false,
      instance_number = false, labels = false, fixes = false, retries = false, assignee = false,
      pin_for = false, pin_until = false, not_before = false, ready = false, calls = false, runs_from = false,
      runs_used = false, push = false, request = false, reason = false, closed_by = false, emitted = false,
      emitted_bytes = false, read_by = false, read_ids = false, broods = false } },
    first = {
      state = true, token = true, run = true, order = true,
      attempt = true, lane = true, pri = true, window = true, review = true, failures = true, handoff = true,
      created = true, max_attempts = true, backoff = true, retry_on = true, escalate = true, by = true,
      role = true, at = true, updated = true, pin = true, gate = true, reports = true, reports_size = true } }
  function task.pack(r)
    return pack(r.state, r.token, r.run, r.order, r.attempt, r.lane,
      r.pri, r.window, r.review, r.failures, r.handoff, r.created, r.max_attempts, r.backoff, r.retry_on,
      r.escalate, r.by, r.role, r.at, r.updated, r.pin, r.gate, r.reports, r.reports_size, r._others)
  end
  function task.unpack(key, v_state, v_token, v_run, v_order, v_attempt, v_lane,
      v_pri, v_window, v_review, v_failures, v_handoff, v_created, v_max_attempts, v_backoff, v_retry_on,
      v_escalate, v_by, v_role, v_at, v_updated, v_pin, v_gate, v_reports, v_reports_size, others)
    if others == nil then return from_map(task, key, v_state) end
    return { key, _kind = task, _others = others, _changed = 0, _waits = false,
      state = v_state, token = v_token, run = v_run, order = v_order,
      attempt = v_attempt, lane = v_lane, pri = v_pri, window = v_window, review = v_review, failures = v_failures,
      handoff = v_handoff, created = v_created, max_attempts = v_max_attempts, backoff = v_backoff,
      retry_on = v_retry_on, escalate = v_escalate, by = v_by, role = v_role, at = v_at, updated = v_updated,
      pin = v_pin, gate = v_gate, reports = v_reports, reports_size = v_reports_size }
  end
  local run = {
    missing = { __newindex = set_new, __index = { _found = true,
      task = false, state = false, secret = false, token = false,
      tokens = false, agent = false, window = false, confirmed = false, attempt = false, started = false,
      workspace = false, incarnation = false, key = false, class = false, ended = false, ended_at = false,
      deadline = false, closed = false, said = false, renewals = false, active = false, call = false,
      call_by = false, call_at = false, same = false, report = false, report_at = false, launched = false,
      exited = false, code = false, containment = false, duration = false, events_full = false, evidence = false,
      exec = false, execs = false, exited_at = false, exits = false, last_event = false, nudge = false,
      nudge_for = false, nudges = false, nudge_seen = false, inbox_seen = false, reminded = false,
      replaced = false, row_told = false, signal = false, timeout = false, tops_seen = false, usage_full = false } },
    first = {
      task = true, state = true, secret = true, token = true,
      tokens = true, agent = true, window = true, confirmed = true, attempt = true, started = true,
      workspace = true, incarnation = true, key = true, class = true, ended = true, ended_at = true,
      deadline = true, closed = true, said = true, renewals = true, active = true, call = true, call_by = true,
      call_at = true, same = true, report = true, report_at = true } }
  function run.pack(r)
    return pack(r.task, r.state, r.secret, r.token, r.tokens, r.agent,
      r.window, r.confirmed, r.attempt, r.started, r.workspace, r.incarnation, r.key, r.class, r.ended,
      r.ended_at, r.deadline, r.closed, r.said, r.renewals, r.active, r.call, r.call_by, r.call_at,
      r.same, r.report, r.report_at, r._others)
  end
  function run.unpack(key, v_task, v_state, v_secret, v_token, v_tokens, v_agent,
      v_window, v_confirmed, v_attempt, v_started, v_workspace, v_incarnation, v_key, v_class, v_ended,
      v_ended_at, v_deadline, v_closed, v_said, v_renewals, v_active, v_call, v_call_by, v_call_at,
      v_same, v_report, v_report_at, others)
    if others == nil then return from_map(run, key, v_task) end
    return { key, _kind = run, _others = others, _changed = 0, _waits = false,
      task = v_task, state = v_state, secret = v_secret,
      token = v_token, tokens = v_tokens, agent = v_agent, window = v_window, confirmed = v_confirmed,
      attempt = v_attempt, started = v_started, workspace = v_workspace, incarnation = v_incarnation,
      key = v_key, class = v_class, ended = v_ended, ended_at = v_ended_at, deadline = v_deadline,
      closed = v_closed, said = v_said, renewals = v_renewals, active = v_active, call = v_call,
      call_by = v_call_by, call_at = v_call_at, same = v_same, report = v_report, report_at = v_report_at }
  end
  local env = {
    missing = { __newindex = set_new, __index = { _found = true,
      parent = false, closed = false, granted_t = false,
      granted_u = false, available_t = false, available_u = false, held_t = false, held_u = false,
      spent_t = false, spent_u = false, carved_t = false, carved_u = false, total_t = false, total_u = false,
      envelope_t = false, envelope_u = false, warned_t = false, warned_u = false, tops = false, cap_t = false,
      cap_u = false, llm_t = false, llm_u = false, reported_t = false, reported_u = false, charged_t = false,
      charged_u = false, unverified_t = false, unverified_u = false, refused = false } },
    first = {
      parent = true, closed = true, granted_t = true, granted_u = true,
      available_t = true, available_u = true, held_t = true, held_u = true, spent_t = true, spent_u = true,
      carved_t = true, carved_u = true, total_t = true, total_u = true, envelope_t = true, envelope_u = true } }
  function env.pack(r)
    return pack(r.parent, r.closed, r.granted_t, r.granted_u, r.available_t,
      r.available_u, r.held_t, r.held_u, r.spent_t, r.spent_u, r.carved_t, r.carved_u, r.total_t,
      r.total_u, r.envelope_t, r.envelope_u, r._others)
  end
  function env.unpack(key, v_parent, v_closed, v_granted_t, v_granted_u, v_available_t,
      v_available_u, v_held_t, v_held_u, v_spent_t, v_spent_u, v_carved_t, v_carved_u, v_total_t,
      v_total_u, v_envelope_t, v_envelope_u, others)
    if others == nil then return from_map(env, key, v_parent) end
    return { key, _kind = env, _others = others, _changed = 0, _waits = false,
      parent = v_parent, closed = v_closed, granted_t = v_granted_t,
      granted_u = v_granted_u, available_t = v_available_t, available_u = v_available_u, held_t = v_held_t,
      held_u = v_held_u, spent_t = v_spent_t, spent_u = v_spent_u, carved_t = v_carved_t, carved_u = v_carved_u,
      total_t = v_total_t, total_u = v_total_u, envelope_t = v_envelope_t, envelope_u = v_envelope_u }
  end
  local kinds = { ['task:'] = task, task = task, ['run:'] = run, ['env:'] = env }

  -- kind_of is the kind of the record of a key, or nil if it is a hash.
  local function kind_of(key)
    local at = #P + 1
    return kinds[string.sub(key, at, at + 3)]
  end

  -- pack_fields makes the string of a record from its fields by name.
  local function pack_fields(key, fields)
    local kind = kind_of(key)
    return kind.pack(setmetatable(from_map(kind, key, fields), kind.missing))
  end

  -- unpack_record makes a record of its string, or of none.
  local function unpack_record(kind, key, text)
    if not text then
      local none = { key, _kind = kind, _others = false, _changed = 0, _waits = false, _found = false }
      return setmetatable(none, kind.missing)
    end
    local r = setmetatable(kind.unpack(key, unpack_values(text)), kind.missing)
    if r._others then
      for name, value in pairs(r._others) do r[name] = value end
    end
    return r
  end

  -- copy copies a record of any kind.
  local function copy(r)
    local c = {}
    for name, value in pairs(r) do c[name] = value end
    if r._others then
      c._others = {}
      for name, value in pairs(r._others) do c._others[name] = value end
    end
    return setmetatable(c, getmetatable(r))
  end

  -- pack_reply makes one string of a reply.
  local function pack_reply(reply) return pack(reply) end -- on a real store only
  return { kinds = kinds, kind_of = kind_of, pack_fields = pack_fields, unpack_record = unpack_record,
    copy = copy, pack_reply = pack_reply }
end)()
