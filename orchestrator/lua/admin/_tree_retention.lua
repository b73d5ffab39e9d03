-- A tree of tasks goes as a whole, from its leaves up, when all of it has ended.

-- tree_still_needed tells whether a task that ended long ago has to stay, and has it
-- looked at again later.
local function tree_still_needed(id, due)
  local t = load(K('task:', id))
  if not t or not t.root and not t.delegated then return false end
  local root = t.root and pick(K('task:', t.root), 'state') or t
  local open = not TERMINAL[root.state] or num(call('HGET', K('tree:', t.root or id), 'open')) > 0
  if not open and (not t.delegated or call('ZCARD', K('children:', id)) == 0) then
    if not t.root then call('DEL', K('tree:', id)) end
    return false
  end
  call('ZADD', K('terminal'), F(due + 3600000), id)
  return true
end
