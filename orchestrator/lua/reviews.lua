-- flags: allow-oom
-- reviews lists tasks that wait for a decision, oldest first, as many as fit
-- into one reply.
-- ARGV: limit
-- Reply: row..., row = {task, task hash, spec, output, ended ms of the run}
local out, size = {}, 0
for _, tid in ipairs(call('ZRANGE', K('by-state:', 'review'), 0, num(ARGV[1]) - 1)) do
  local rid = call('HGET', K('task:', tid), 'run')
  size = size + call('STRLEN', K('out:', tid)) + call('STRLEN', K('spec:', tid))
  if size > MAX_REPLY and #out > 0 then break end
  out[#out + 1] = { tid, call('HGETALL', K('task:', tid)), call('GET', K('spec:', tid)), call('GET', K('out:', tid)),
    call('HGET', K('run:', rid), 'ended') }
end
return out
