-- What the verb changed is written when it is done; a refusal changed nothing.
local reply = verb()
if type(reply) == 'table' and reply.err then return reply end
if at_the_end then at_the_end() end
save()
return reply
