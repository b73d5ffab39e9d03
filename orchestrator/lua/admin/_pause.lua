-- needs: conflicts
-- The stop button as somebody has seen it.

-- unseen tells whether it was pressed since: at is when the pause was made that
-- they have seen, 0 for none, '' where they did not say.
local function unseen(at)
  return at ~= '' and at ~= (call('HGET', META, 'paused_at') or '0')
end

-- pressed is their refusal: who pressed it, when and why.
local function pressed()
  local p = call('HMGET', META, 'paused_by', 'paused_at', 'paused_why')
  return first('state_conflict', p[1], 'decision', paused == 'hard' and 'stop' or 'pause', 'at', p[2] or '-', 'reason', escape_text(p[3]))
end
