-- flags: allow-oom
-- needs: agent bundle delete_events delete_money index_keys message push quota registration runkey runs tree_retention
-- retain deletes what ended long ago: closed tasks with all they own, agents
-- that are gone, run keys that have expired, totals of old days, and old events from the head of the
-- log and of the audit log. Age is judged by store time, so a jump of the
-- server's clock deletes nothing.
-- alone
-- ARGV: task age ms, event age ms, max events, limit, audit age ms, max audit events, age of the totals of a day ms,
--   message age ms
-- Reply: number of tasks, days, totals, messages, run keys, agents and events deleted or begun with
local age, event_age, max, limit = num(ARGV[1]), num(ARGV[2]), num(ARGV[3]), num(ARGV[4])
local n = 0
local function delete_task(tid)
  local t = load(K('task:', tid))
  for _, rid in ipairs(runs_of(tid, t or { attempt = '2' }, 1000000)) do
    local hid = 'handoff_' .. string.sub(rid, 5)
    local state = call('HGET', K('handoff:', hid), 'state')
    if state then call('ZREM', K('handoffs:', state), hid) end
    call('DEL', K('run:', rid), K('detail:', rid), K('seen:', rid), K('told:', rid), K('refused:', rid),
      K('gated:', rid), K('evidence:', rid), K('work:', rid), K('exec:', rid), K('usage:', rid), K('short:', rid),
      K('log:', rid .. ':stdout'), K('log:', rid .. ':stderr'), K('marks:', rid .. ':stdout'), K('marks:', rid ..
      ':stderr'), K('handoff:', hid), K('answer:', hid))
  end
  delete_bundle(tid, t and t.root or tid) -- @deletes-bundle
  delete_conversation(tid) -- @deletes-conversation
  if t then -- only a damaged store has none
    for _, key in ipairs(index_keys(t)) do call('ZREM', key, tid) end
    call('ZREM', K('by-state:', t.state), tid)
    if t.client then
      for _, key in ipairs(client_lists(t)) do call('ZREM', key, tid) end -- @forgets-for-client
      local bytes = K('client-bytes:', t.client)
      local left = call('HINCRBY', bytes, 'inputs', F(-call('STRLEN', K('in:', tid)))) -- @uncounts-bytes-of-client
      if left <= 0 then call('DEL', bytes) end
      for _, cid in ipairs(call('ZRANGE', K('pushes:', tid), 0, -1)) do pushes.drop(tid, t, cid) end -- @forgets-pushes
    end
  end
  call('ZREM', K('terminal'), tid)
  call('DEL', K('task:', tid), K('spec:', tid), K('in:', tid), K('out:', tid), K('runs:', tid), K('reports:', tid),
    K('updates:', tid), K('emitted:', tid), K('artifacts:', tid), -- @deletes-emissions
    K('answers:', tid), K('edit:', tid), K('review:', tid))
end

for _, tid in ipairs(call('ZRANGEBYSCORE', K('terminal'), '-inf', F(now - age), 'LIMIT', 0, limit)) do
  if not tree_still_needed(tid, now - age) and delete_money(tid) then delete_task(tid) end
  n = n + 1
end
-- An upload that nobody has gone on with for an hour is given up.
for _, tid in ipairs(call('ZRANGEBYSCORE', K('uploads'), '-inf', F(now - 3600000), 'LIMIT', 0, limit)) do
  delete_upload(tid, root_of(tid, pick(K('task:', tid), 'root'))) -- @gives-upload-up
  n = n + 1
end
n = n + delete_days(F(now - age), limit)
n = n + delete_spending(F(now - num(ARGV[7])), limit)
for _, id in ipairs(call('ZRANGEBYSCORE', K('sent'), '-inf', F(now - num(ARGV[8])), 'LIMIT', 0, limit)) do
  delete_message(id) -- @deletes-old-messages
  n = n + 1
end
n = n + delete_expired_run_keys(K('run-keys'), limit) -- @deletes-run-keys

for _, id in ipairs(call('ZRANGEBYSCORE', K('gone'), '-inf', F(now - age), 'LIMIT', 0, limit)) do
  local a = read_agent(id)
  call('ZREM', K('gone'), id)
  if GONE[a.status] then
    move_roster(id, a.role, a.status)
    count_role(K('pools'), a.role, -1)
    count_role(K('roles-of:', a.owner), a.role, -1)
    add_stored(a.owner, -1, -call('STRLEN', K('metadata:', id))) -- @uncounts-records
    call('DEL', K('agent:', id), K('metadata:', id), K('commands:', id))
    delete_conversation(id) -- @deletes-inbox
  end
  n = n + 1
end

-- The audit log has few of the numbers, so what goes is read, up to limit events.
local audit_age, spare = num(ARGV[5]), call('XLEN', K('audit')) - num(ARGV[6])
local audit_cut
for i, e in ipairs(call('XRANGE', K('audit'), '-', '+', 'COUNT', limit)) do
  if i > spare and not is_old(e, audit_age) then break end
  audit_cut, n = last_of(e), n + 1
end
if audit_cut then
  call('XTRIM', K('audit'), 'MINID', F(audit_cut + 1) .. '-0')
  call('HSET', META, 'audit_trimmed', F(audit_cut))
end

return n + delete_events(event_age, max, limit)
