-- needs: conflicts
-- The stop button as somebody has seen it.

-- pause_view shows it: mode ('' when nothing is paused), reason, by, at.
local function pause_view()
  local p = call('HMGET', META, 'paused', 'paused_why', 'paused_by', 'paused_at')
  return named{ mode = p[1], reason = p[2], by = p[3], at = p[4] }
end

-- pause_changed tells whether it was pressed since: at is when the pause was made that
-- they have seen, 0 for none, '' where they did not say.
local function pause_changed(at)
  return at ~= '' and at ~= (call('HGET', META, 'paused_at') or '0')
end

-- refuse_pause_changed is their refusal: who pressed it, when and why.
local function refuse_pause_changed()
  local p = call('HMGET', META, 'paused_by', 'paused_at', 'paused_why')
  return refuse_as_second('state_conflict.decided', p[1], 'decision', paused == 'hard' and 'stop' or 'pause',
    'at', p[2] or '-', 'reason', escape_text(p[3]))
end
