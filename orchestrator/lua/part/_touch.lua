-- touch notes that a task has changed within its state.
local function touch(id, t)
  put(t, 'updated', RAW)
  pick(t[1], 'client', 'context')
  if t.client then list_for_client(id, t, t.state) end -- @lists-touched
end
