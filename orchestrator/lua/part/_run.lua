-- run runs a verb. What the verb changed is written when it is done; a refusal changed nothing.
local function run(verb, clockless)
  for _, f in ipairs(begins) do f() end
  local no = not clockless and begin_clock()
  if no then return no end
  local reply = verb()
  if type(reply) == 'table' and reply.err then return reply end
  for _, f in ipairs(deferred) do f() end
  save()
  return reply
end
