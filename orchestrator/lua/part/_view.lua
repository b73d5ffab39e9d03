-- needs: review_digest runs
-- Views are what Go decodes into the nouns: taskView, runView, handoffView.
local function hash_or_false(key)
  local flat = call('HGETALL', key)
  if #flat == 0 then return false end
  return flat
end

-- handoff_view shows a hand-off, or false if there is none; the second value is
-- about how many bytes it has.
local function handoff_view(hid)
  if not hid or hid == '' then return false end
  local flat = hash_or_false(K('handoff:', hid))
  local rid = 'run_' .. string.sub(hid, 9)
  if not flat then return false end
  local answer, work = call('GET', K('answer:', hid)), call('GET', K('work:', rid))
  return named{ id = hid, record = flat, answer = answer, work = work,
    workspace = call('HGET', K('run:', rid), 'workspace') }, (answer and #answer or 0) + (work and #work or 0)
end

-- answers_of lists what people answered on a task, oldest first: the latest
-- MiB, and never less than the last one. One that was handed down by the task
-- that this one repeats stands in the list itself: that one may be deleted.
local function answers_of(id)
  local out, size = {}, 0
  local all = call('LRANGE', K('answers:', id), -100, -1)
  for i = #all, 1, -1 do
    local a = string.sub(all[i], 1, 1) == '{' and all[i] or call('GET', K('answer:', all[i]))
    size = size + #a
    if size > 1048576 and #out > 0 then break end
    table.insert(out, 1, a)
  end
  return out
end

local function run_view(rid)
  return named{ id = rid, record = call('HGETALL', K('run:', rid)), detail = call('GET', K('detail:', rid)) }
end

-- task_view reads the whole of a task in one step, with what the verb changed.
-- input is shown in place of the input that was submitted, unless it is false. known is how many of the first
-- emissions the reader knows; nil shows none of them.
local function task_view(id, input, known)
  save()
  local t = load(K('task:', id))
  if not t then return refuse('not_found', 'kind', 'task') end
  local runs = {}
  for _, rid in ipairs(runs_of(id, t, 100)) do
    runs[#runs + 1] = run_view(rid)
  end
  local handoff = handoff_view(t.handoff)
  return named{
    id = id, raw = RAW, now = NOW, seq = meta.seq or '0', deadline = call('ZSCORE', K('deadlines'), id),
    record = call('HGETALL', K('task:', id)), spec = call('GET', K('spec:', id)),
    input = input or call('GET', K('in:', id)), output = call('GET', K('out:', id)), runs = runs,
    report = call('LINDEX', K('reports:', id), -1), answers = answers_of(id), handoff = handoff,
    review = hash_or_false(K('review:', id)), envelope = hash_or_false(K('env:', id)),
    children = t.delegated and call('ZRANGE', K('children:', id), 0, -1) or {},
    emitted = known and call('LRANGE', K('emitted:', id), known, -1) or {}, -- @shows-new-emissions
    digest = t.state == 'review' and (review_digest(t)),
  }
end
