-- run_verb runs a verb. What the verb changed is written when it is done; a refusal changed nothing.
local function run_verb(verb)
  for _, f in ipairs(verb_begins) do f() end
  local reply = verb()
  if type(reply) == 'table' and reply.err then return reply end
  for _, f in ipairs(deferred) do f() end
  save()
  return reply
end

-- run is a call of one verb.
local function run(verb, clockless)
  for _, f in ipairs(call_begins) do f() end
  local no = not clockless and begin_clock()
  if no then return no end
  local reply = run_verb(verb)
  save_call()
  return reply
end

-- run_batch is a call of several verbs, one after the other. ARGV has for each of them its name,
-- the number of its arguments, and these. Each has its own answer: one that refuses or breaks
-- changes nothing for the others.
local function run_batch(verbs)
  for _, f in ipairs(call_begins) do f() end
  local no = begin_clock()
  if no then return no end
  local items, replies, at = ARGV, {}, 1
  while at < #items do
    local n, args = num(items[at + 1]), {}
    for i = 1, n do args[i] = items[at + 1 + i] end
    ARGV = args
    local seq, order, granted = meta.seq, meta.order, meta.granted
    local ok, reply = pcall(run_verb, verbs[items[at]])
    if not ok then
      reply = { err = type(reply) == 'table' and reply.err or 'ERR ' .. tostring(reply) } -- @tells-broken
    end
    if ok and type(reply) == 'table' and reply.err and seq == meta.seq then
      meta.order, meta.granted = order, granted -- @refused-counts-nothing
    end
    replies[#replies + 1] = reply or false
    at = at + 2 + n
  end
  save_call()
  return replies
end
