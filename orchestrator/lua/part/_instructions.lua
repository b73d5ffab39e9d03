-- The standing instructions of an agent name are its file AGENT.md, as the process with the directory of
-- policies has published it.

-- instructions_of is the text for an agent, or false. The agent has the name that its registration gave.
local function instructions_of(id)
  local name = call('HGET', K('agent:', id), 'agent_name')
  return name and name ~= '' and call('HGET', K('instructions'), name)
end
