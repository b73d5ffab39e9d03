-- touch notes that a task has changed within its state.
local function touch(id, t)
  put(t, 'updated', RAW)
  pick(t[1], 'client', 'context')
  for _, key in ipairs(t.client and client_lists(t) or {}) do call('ZADD', key, '-' .. RAW, id) end -- @lists-touched
end
