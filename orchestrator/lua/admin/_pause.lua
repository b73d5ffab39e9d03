-- needs: conflicts
-- The stop button as somebody has seen it.

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
