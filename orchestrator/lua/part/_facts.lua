-- Facts are what an event says about its task, a question or money, so that people can act on a
-- notice. All of them are bounded. Only events that can be notices carry them. Events that come
-- often stay small.

-- clip cuts a text after n bytes, without half a character, and makes one line of it.
local function clip(s, n)
  s = string.gsub(s, '%c', ' ')
  if #s <= n then return s end -- @clips-facts
  return string.gsub(string.sub(s, 1, n), '[\192-\255][\128-\191]*$', '') .. '…'
end

-- label_facts are the first labels of a task by name, as members of an object.
local function label_facts(labels)
  local names, out, size = {}, {}, 0
  for name in pairs(labels or {}) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    size = size + #name + #labels[name]
    if #out == 8 or size > 512 then break end -- @bounds-label-facts
    out[#out + 1] = quote(name) .. ':' .. quote(labels[name])
  end
  return table.concat(out, ',')
end

-- name_fact is the name under which an agent is registered, after a comma. It is empty where the agent
-- has none.
local function name_fact(agent)
  if not meta.incarnations then return '' end -- nobody has ever been registered
  local name = pick(K('agent:', agent or ''), 'name').name or ''
  return name ~= '' and ',"agentName":' .. quote(clip(name, 80)) or '' -- @names-agent
end

-- task_facts is the member "task" of an event, after a comma, with the name of the agent that worked on
-- it last, and the specification of the task. It is empty where there is no task, as for the envelope of
-- a day.
local function task_facts(tid)
  local spec = call('GET', K('spec:', tid))
  if not spec then return '', {} end
  local s = cjson.decode(spec)
  local run = pick(K('task:', tid), 'run').run or ''
  return ',"task":{"title":' .. quote(clip(s.title, 200)) .. ',"role":' .. quote(s.role) .. ',"labels":{' ..
    label_facts(s.labels) .. '}' .. (s.assignee and ',"assignee":' .. quote(s.assignee) or '') .. '}' ..
    name_fact(pick(K('run:', run), 'agent').agent), s
end

-- with_facts adds the facts of a task to the data of an event that was made elsewhere.
local function with_facts(data, tid)
  local facts = task_facts(tid)
  if data == '{}' then return '{' .. string.sub(facts, 2) .. '}' end
  return string.sub(data, 1, -2) .. facts .. '}'
end

-- run_facts is how long a run has worked and what is left of its timeout, after a comma.
local function run_facts(r, spec)
  local elapsed = math.max(0, raw - num(pick(r[1], 'started').started)) / 1000
  local facts = ',"elapsedSeconds":' .. string.format('%.3f', elapsed)
  local timeout = num(spec.timeoutSeconds or pick(r[1], 'timeout').timeout)
  if timeout == 0 then return facts end
  return facts .. ',"timeoutSeconds":' .. F(timeout) .. ',"remainingSeconds":' ..
    string.format('%.3f', math.max(0, timeout - elapsed))
end
