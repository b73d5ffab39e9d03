-- index_keys names every list key the task stands in beside its state.
local function index_keys(role, labels)
  local keys = { K('tasks') }
  if role ~= '' then keys[2] = K('by-role:', role) end
  for label in string.gmatch(labels, '[^\n]+') do keys[#keys + 1] = K('by-label:', label) end
  return keys
end
