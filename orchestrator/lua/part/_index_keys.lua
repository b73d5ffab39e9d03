-- index_keys names every list key the task stands in beside its state. t is a record, or the specification of a
-- new task.
local function index_keys(t)
  local keys = { K('tasks') }
  if t.role and t.role ~= '' then keys[2] = K('by-role:', t.role) end
  if t.assignee and t.assignee ~= '' then keys[#keys + 1] = K('by-assignee:', t.assignee) end -- @lists-assignee
  if not t.labels or t.labels == '' then return keys end
  for label in string.gmatch(t.labels, '[^\n]+') do keys[#keys + 1] = K('by-label:', label) end
  return keys
end
