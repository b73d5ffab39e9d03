-- Quotas bound how much one key, or one tree of tasks, may store. The counters
-- change in the step that stores or deletes something.

-- check_quota returns the refusal of a request beyond a quota.
local function check_quota(quota, limit, has, more)
  if has + more > limit then return refuse('quota_exceeded', 'quota', quota, 'limit', F(limit)) end
end

-- key_owner is the key for which counts what a run with this key stores, which may be ''. A run key
-- counts for its parent. Only run keys are ever deleted: nil means that this one is gone, and
-- nobody knows its parent any more.
local function key_owner(key)
  if not key or key == '' then return '' end
  local k = call('HMGET', K('key:', key), 'parent', 'hash')
  return k[1] or k[2] and key -- @counts-for-parent
end

-- stored_by_key counts what a key keeps: records of agents and bytes of their metadata.
local function stored_by_key(key) return pick(K('kept-by:', key), 'agents', 'bytes') end

-- add_stored counts what a key stores from now on, or less than before. Records
-- from before there were counters were never added, so a counter stops at 0.
local function add_stored(key, agents, bytes)
  local name = K('kept-by:', key)
  local was = call('HMGET', name, 'agents', 'bytes')
  local a, b = math.max(0, num(was[1]) + agents), math.max(0, num(was[2]) + bytes) -- @counts-from-zero
  if a > 0 or b > 0 then -- @keeps-counters
    call('HSET', name, 'agents', F(a), 'bytes', F(b))
  else
    call('DEL', name)
  end
end

-- Calls of a tree and their answers are kept for a day. They are counted in
-- slots of two hours of the server's own clock, by which the answers expire.

local function root_of(tid, t) return t.root or tid end -- @counts-per-tree

-- count_kept_calls returns how many calls and answers of the last day a tree keeps,
-- the bytes of the answers, and the slots.
local function count_kept_calls(root)
  local slots, calls, answers, bytes = {}, 0, 0, 0
  local flat = call('HGETALL', K('kept:', root))
  for i = 1, #flat, 2 do
    local c, a, b = string.match(flat[i + 1], '^(%d+) (%d+) (%d+)$')
    slots[flat[i]] = { num(c), num(a), num(b) }
    calls, answers, bytes = calls + num(c), answers + num(a), bytes + num(b)
  end
  return calls, answers, bytes, slots
end

-- record_kept_call counts a call, or an answer with its bytes, in the slot of now and
-- forgets the slots of another day.
local function record_kept_call(root, slots, calls, answers, bytes)
  local SLOT, SLOTS = 7200000, 13 -- ms
  local key, at = K('kept:', root), math.floor(raw / SLOT)
  local s = slots[F(at)] or { 0, 0, 0 }
  call('HSET', key, F(at), F(s[1] + calls) .. ' ' .. F(s[2] + answers) .. ' ' .. F(s[3] + bytes))
  call('PEXPIRE', key, F(SLOT * SLOTS))
  for slot in pairs(slots) do
    if math.abs(num(slot) - at) >= SLOTS then call('HDEL', key, slot) end
  end
end

-- subtasks_in_tree is how many subtasks were ever made below a root task.
local function subtasks_in_tree(root) return num(call('HGET', K('tree:', root), 'made')) end
