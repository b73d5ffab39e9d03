-- flags: allow-oom
-- needs: agent
-- owns_name reports whether a key has registered an agent of an agent name that participates.
-- ARGV: agent name, key
-- Reply: owns 0|1
local owns = 0
for _, id in ipairs(call('ZRANGE', named_agents(ARGV[1], ARGV[2]), 0, -1)) do
  if lives(read_agent(id)) then
    owns = 1
    break
  end
end
return named{ owns = owns }
