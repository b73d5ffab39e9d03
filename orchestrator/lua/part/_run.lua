-- run_verb runs a verb. What the verb changed is written when it is done; a refusal changed nothing.
local function run_verb(verb)
  for _, f in ipairs(verb_begins) do f() end
  local reply = verb()
  if type(reply) == 'table' and reply.err then return reply end
  for _, f in ipairs(deferred) do f() end
  save()
  return reply
end

-- answer_of runs a verb and returns its answer, an error if it breaks. What it has written by then stays, and the
-- numbers that it has taken stay taken.
local function answer_of(verb)
  local ok, reply = pcall(run_verb, verb)
  if ok then return reply or false end
  -- It is a table if Redis has refused a command.
  local e = type(reply) == 'table' and reply or { err = 'ERR ' .. tostring(reply) }
  return { err = e.err .. (e.line and ' at user_function:' .. e.line .. ':' or '') }
end

-- run is a call of one verb.
local function run(verb, clockless)
  meta = nil
  for _, f in ipairs(call_begins) do f() end
  local no = not clockless and begin_clock()
  if no then return no end
  local reply = answer_of(verb)
  save_call()
  return reply
end

-- run_batch is a call of several verbs, one after the other, in a library only. ARGV has for each of them its name,
-- the number of its arguments, and these. The reply has for each of them 1 if it refused or broke and
-- 0 if not, and its answer: one that refuses or breaks changes nothing for the others. An error within
-- a reply is a text, because a client may take an error there for one of the connection.
local function run_batch(verbs)
  for _, f in ipairs(call_begins) do f() end
  local no = begin_clock()
  if no then return no end
  local items, replies, at = ARGV, {}, 1
  while at < #items do
    local n, args = num(items[at + 1]), {}
    for i = 1, n do args[i] = items[at + 1 + i] end
    ARGV = args
    local answer = answer_of(verbs[items[at]])
    local no = type(answer) == 'table' and answer.err
    replies[#replies + 1] = no and 1 or 0
    replies[#replies + 1] = no or answer
    at = at + 2 + n
  end
  save_call()
  return replies
end
