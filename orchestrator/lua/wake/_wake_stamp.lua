-- needs: agent
-- wake_stamp is a word for all that a decision about a wake is made by, apart from the time and the wakes of the
-- cycle. A decision holds as long as the word is the same.
local function wake_stamp(name, sid, w)
  local newest = call('ZRANGE', K('policy-revisions:', name), -1, -1)[1] or ''
  local lock = call('HMGET', K('policy-lock'), 'until', 'since')
  local locked = num(lock[1]) > now
  local file = locked and call('HGET', K('policy-files'), name) or ''
  local s = call('HMGET', K('asession:', sid), 'agent', 'name', 'incarnation', 'state', 'prompt', 'silent', 'because',
    'ended', 'stop', 'reported_at', 'owner', 'metered', 'turn')
  local a = s[1] and read_agent(s[1]) or {}
  local parts = { newest, tostring(locked), redis.sha1hex(file), tostring(a.status), tostring(a.incarnation),
    F(call('ZCARD', K('open-prompts:', sid))), tostring(w.under_way), tostring(w.last),
    paused, call('HGET', META, 'adopted') or '', tostring(lock[2]) }
  for i = 1, 13 do parts[#parts + 1] = tostring(s[i]) end
  return redis.sha1hex(table.concat(parts, ' '))
end
