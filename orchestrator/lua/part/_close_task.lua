-- needs: money
-- close_task moves a task to a state in which it has ended, and closes its
-- envelope. Further fields are written with the state.
local function close_task(id, t, to, ...)
  call('ZADD', K('terminal'), NOW, id)
  close_envelope(id)
  if t.root then call('HINCRBY', K('tree:', t.root), 'open', -1) end
  move(id, t, to, ...)
end
