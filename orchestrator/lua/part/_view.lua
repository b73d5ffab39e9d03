-- needs: review_digest
-- task_view reads the whole of a task in one step, with what the script changed; the
-- Go side decodes it.
local function hash_or_false(key)
  local flat = call('HGETALL', key)
  if #flat == 0 then return false end
  return flat
end

local function handoff_view(hid)
  if not hid or hid == '' then return false end
  local flat = hash_or_false(K('handoff:', hid))
  local rid = 'run_' .. string.sub(hid, 9)
  return flat and { hid, flat, call('GET', K('answer:', hid)), call('HGET', K('run:', rid), 'workspace'),
    call('GET', K('work:', rid)) }
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
  return { rid, call('HGETALL', K('run:', rid)), call('GET', K('detail:', rid)) }
end

local function task_view(id)
  save()
  local t = load(K('task:', id))
  if not t then return refuse('not_found', 'kind', 'task') end
  local runs = {}
  for _, rid in ipairs(call('LRANGE', K('runs:', id), -100, -1)) do
    runs[#runs + 1] = run_view(rid)
  end
  return {
    id, RAW, NOW, call('ZSCORE', K('deadlines'), id), call('HGETALL', K('task:', id)),
    call('GET', K('spec:', id)), call('GET', K('in:', id)), call('GET', K('out:', id)), runs,
    call('LINDEX', K('reports:', id), -1), answers_of(id),
    handoff_view(t.handoff), hash_or_false(K('review:', id)), hash_or_false(K('env:', id)),
    t.delegated and call('ZRANGE', K('children:', id), 0, -1) or {},
    t.state == 'review' and (review_digest(t)),
  }
end
