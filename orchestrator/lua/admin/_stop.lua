-- needs: end_lease retry_policy stale_entry
-- stop_runs ends up to limit live runs because the namespace is paused hard;
-- the chore stays noted until none is left.
local function stop_runs(actor, limit)
  local live = call('ZRANGE', K('deadlines'), 0, limit - 1)
  for _, tid in ipairs(live) do
    local t = load(K('task:', tid))
    if t and t.state == 'leased' then
      local r = pick(K('run:', t.run), 'agent', 'token', 'incarnation', 'key')
      end_lease(tid, t.run, 'released', 'released')
      local state, failures, facts = apply_retry_policy(tid, t, t.run, 'released', true)
      emit('lease.released', { task = tid, run = t.run, agent = r.agent, token = r.token, actor = actor,
        reason = 'paused' }, '{"state":' .. quote(state) .. ',"failures":' .. F(failures) ..
        ',"reason":"paused","exit":{"class":"released","code":null,"signal":null}' .. before_after('state',
        'leased', state) .. facts .. '}')
    else
      remove_stale_entry('deadline_extra', K('deadlines'), tid)
    end
  end
  if #live < limit then call('ZREM', K('chores'), 'pause') end
  return #live
end
