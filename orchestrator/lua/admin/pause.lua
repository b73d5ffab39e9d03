-- flags: allow-oom
-- needs: pause stop
-- pause presses the stop button: no grants from now on; hard also ends runs,
-- up to a batch here and the rest as a chore. A pause that comes after a stop
-- does not weaken it, but is the newest pause: nobody who has not seen it ends it.
-- ARGV: actor, hard 0|1, reason, limit, request key, body hash, when the pause was made that the
--   actor has seen, 0 for none, '' not said
-- Reply: a pause_view
-- Errors: state_conflict (paused by somebody else since), idempotency_conflict
local actor, hard = ARGV[1], ARGV[2] == '1'
local was, err = find_request(ARGV[5], ARGV[6])
if err then return err end
if not was and not hard and paused ~= '' and pause_changed(ARGV[7]) then return refuse_pause_changed() end
if not was then
  local mode = (hard or paused == 'hard') and 'hard' or 'soft'
  call_now('HSET', META, 'paused', mode, 'paused_by', actor, 'paused_why', ARGV[3], 'paused_at', RAW)
  local before = paused
  paused = mode -- as in the store, even if this verb breaks
  emit('namespace.paused', { actor = actor }, '{"hard":' .. tostring(hard) .. ',"reason":' .. quote(ARGV[3]) ..
    before_after('paused', before, mode) .. '}')
  if hard then
    call('ZADD', K('chores'), NOW, 'pause')
    stop_runs(actor, num(ARGV[4])) -- @pauses-runs
  end
end
if not was then remember(ARGV[5], ARGV[6], 'done', DAY) end
return pause_view()
