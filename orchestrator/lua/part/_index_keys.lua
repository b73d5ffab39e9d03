-- index_keys names every list key the task stands in beside its state. t is a record, or the specification of a
-- new task.
local function index_keys(t)
  local keys = { K('tasks') }
  local function add(kind, value)
    if value and value ~= '' then keys[#keys + 1] = K(kind, value) end
  end
  add('by-role:', t.role)
  add('by-assignee:', t.assignee) -- @lists-assignee
  for label in string.gmatch(t.labels or '', '[^\n]+') do add('by-label:', label) end
  return keys
end
