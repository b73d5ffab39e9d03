-- run_verb runs a verb. What the verb changed is kept when it is done; a refusal changed nothing.
local function run_verb(verb)
  for _, f in ipairs(verb_begins) do f() end
  local reply = verb()
  if type(reply) == 'table' and reply.err then return reply end
  for _, f in ipairs(deferred) do f() end
  save()
  keep_activity()
  return reply
end

-- answer_of runs a verb and returns its answer. If the verb breaks, the answer is an error, and of what it has changed
-- only that stays which it needed to have written at once.
local function answer_of(verb)
  local ok, reply = pcall(run_verb, verb)
  -- A test breaks verbs, and only on a real store does the server run on after that.
  if ok then return reply or false end -- on a real store only
  for _, f in ipairs(verb_breaks) do f() end -- on a real store only
  undo()
  local said = type(reply) == 'table' and reply.err or tostring(reply)
  -- What a command is refused with has a code. An error of Lua has none.
  return { err = string.match(said, '^%u%u+ ') and said or 'ERR ' .. said }
end

-- run handles a call of one verb.
local function run(verb, clockless)
  meta = nil
  for _, f in ipairs(call_begins) do f() end
  local no = not clockless and begin_clock()
  if no then return no end
  local reply = answer_of(verb)
  save_call()
  return reply
end

-- run_batch runs several verbs one after another. Only a library has it. For each verb, ARGV has its name, the number
-- of its arguments, and the arguments. For each verb, the reply has 1 if it refused or broke, otherwise 0, and then
-- its answer. A verb that refuses or breaks does not affect the others. An error within
-- a reply is a text, because a client may take an error there for one of the connection.
local function run_batch(verbs)
  for _, f in ipairs(call_begins) do f() end
  local no = begin_clock()
  if no then return no end
  local items, replies, at = ARGV, {}, 1
  while at < #items do
    local n = num(items[at + 1])
    ARGV = { unpack(items, at + 2, at + 1 + n) }
    local answer = answer_of(verbs[items[at]])
    local no = type(answer) == 'table' and answer.err
    replies[#replies + 1] = no and 1 or 0
    replies[#replies + 1] = no or answer
    at = at + 2 + n
  end
  save_call()
  return replies
end
