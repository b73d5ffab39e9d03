-- index_keys names every list key the task stands in beside its state.
local function index_keys(role, labels, assignee)
  local keys = { K('tasks') }
  if role ~= '' then keys[2] = K('by-role:', role) end
  if assignee ~= '' then keys[#keys + 1] = K('by-assignee:', assignee) end -- @lists-assignee
  for label in string.gmatch(labels, '[^\n]+') do keys[#keys + 1] = K('by-label:', label) end
  return keys
end
