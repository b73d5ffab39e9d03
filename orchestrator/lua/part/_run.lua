-- run_verb runs a verb. What the verb changed is kept when it is done; a refusal changed nothing.
local function run_verb(verb)
  for i = 1, #verb_begins do verb_begins[i]() end
  local reply = verb()
  if type(reply) == 'table' and reply.err then
    drop_changes()
    save() -- what it has written stays: it has to have done that on purpose
    defer_nothing()
    drop_activity()
    return reply
  end
  run_deferred()
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
  defer_nothing()
  drop_activity()
  local said = type(reply) == 'table' and reply.err or tostring(reply)
  -- What a command is refused with has a code. An error of Lua has none.
  return { err = string.match(said, '^%u%u+ ') and said or 'ERR ' .. said }
end

-- calls_of is how many calls of a verb the batch has that runs.
local call_counts
on_call(function() call_counts = {} end)
local function calls_of(name) return call_counts[name] or 0 end

-- want_reads wants what a verb reads in any case: kinds of keys, and where among its arguments their ids are.
local function want_reads(reads, args, before)
  for i = 1, #reads, 2 do
    local kind, id = reads[i], args[before + reads[i + 1]]
    if kind == 'deadlines:' then
      ahead.want_score('deadlines', id)
    else
      ahead.want(kind, id)
    end
  end
end

-- run handles a call of one verb.
local function run(verb, clockless, reads)
  meta = nil
  for _, f in ipairs(call_begins) do f() end
  local no = not clockless and begin_clock()
  if no then return no end
  save() -- the first verb begins
  if reads then want_reads(reads, ARGV, 0) end
  ahead.read()
  local reply = answer_of(verb)
  return save_call() or reply
end

-- run_batch runs several verbs one after another. Only a library has it. For each verb, ARGV has its name, the number
-- of its arguments, and the arguments. For each verb, the reply has 1 if it refused or broke, otherwise 0, and then
-- its answer. A verb that refuses or breaks does not affect the others. The reply is
-- one string of MessagePack, and an error in it is a text.
local function run_batch(verbs, reads)
  for _, f in ipairs(call_begins) do f() end
  local no = begin_clock()
  if no then return no end
  local items, replies, n, at, lasts = ARGV, {}, 0, 1, {} -- lasts: of each verb, where its last argument is
  packs_replies = true
  save() -- the first verb begins
  while at < #items do
    local name = items[at]
    if reads[name] then want_reads(reads[name], items, at + 1) end
    call_counts[name] = (call_counts[name] or 0) + 1
    lasts[at] = at + 1 + num(items[at + 1])
    at = lasts[at] + 1
  end
  ahead.read()
  at = 1
  while at < #items do
    local last = lasts[at]
    ARGV = { unpack(items, at + 2, last) }
    local answer = answer_of(verbs[items[at]])
    local no = type(answer) == 'table' and answer.err
    replies[n + 1], replies[n + 2] = no and 1 or 0, no or answer
    n, at = n + 2, last + 1
  end
  return save_call() or packing.pack_reply(replies)
end
