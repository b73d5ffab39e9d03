-- flags: allow-oom
-- needs: pause
-- resume lets grants flow again. Resuming what is not paused changes nothing.
-- ARGV: actor, reason, request key, body hash, when the pause was made that the actor has seen, '' not said
-- Reply: a pause_view
-- Errors: state_conflict (paused by somebody else since), idempotency_conflict
local was, err = find_request(ARGV[3], ARGV[4])
if err then return err end
if not was and paused ~= '' and pause_changed(ARGV[5]) then return refuse_pause_changed() end
if not was and paused ~= '' then
  call('HDEL', META, 'paused', 'paused_by', 'paused_why', 'paused_at')
  local before = paused
  paused = ''
  call('ZREM', K('chores'), 'pause')
  emit('namespace.resumed', { actor = ARGV[1] }, '{"reason":' .. quote(ARGV[2]) .. before_after('paused', before, '') ..
    '}')
  wake('lane *')
end
remember(ARGV[3], ARGV[4], 'done', DAY)
return pause_view()
