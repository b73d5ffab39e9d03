-- What the verb changed is written when it is done; a refusal changed nothing.
local reply = verb()
if type(reply) == 'table' and reply.err then return reply end
for _, f in ipairs(deferred) do f() end
save()
return reply
