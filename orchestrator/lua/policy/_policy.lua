-- The wake policy of an agent name is the newest of its revisions, unless that is a deletion. A
-- revision is never changed. Its number is that of its event.
local MOST_NAMES, MOST_REVISIONS = 200, 50 -- of a namespace, and of a name

-- policy_row shows a revision, or nil if it is not kept. Its body is '' if the revision is a deletion.
local function policy_row(id)
  local r = call('HMGET', K('policy-revision:', id), 'agent', 'action', 'of', 'by', 'at', 'number', 'body', 'digest')
  if not r[1] then return nil end
  return named{ id = id, agent = r[1], action = r[2], of = r[3], by = r[4], at = r[5], number = r[6], body = r[7],
    digest = r[8] }, #r[7]
end

-- current_revision is the id of the policy of a name, or '' if it has none.
local function current_revision(name) return call('HGET', K('policy:', name), 'current') or '' end

-- policy_state is the policy of a name with what its file has in place of it and what is known of its instructions, and
-- how large they are.
local function policy_state(name)
  local id = current_revision(name)
  local newest = call('ZRANGE', K('policy-revisions:', name), -1, -1)[1]
  local over = newest and call('HGET', K('policy-revision:', newest), 'over') or ''
  local locked = num(call('HGET', K('policy-lock'), 'until')) > now
  local file = locked and call('HGET', K('policy-files'), name) or '' -- @counts-with-lock
  local about = call('HGET', K('instruction-files'), name) or ''
  local rows, size = {}, 0
  if id ~= '' then rows[1], size = policy_row(id) end
  return named{ name = name, raw = RAW, rows = rows, newest = newest or '', over = over, file = file,
    instructions = about }, size + #file + #about
end
