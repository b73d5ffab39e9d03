-- flags: allow-oom
-- needs: runs
-- evidence reads what the runs of a task have changed, the latest run first.
-- alone
-- ARGV: task, run or '' for all
-- Reply: list of run, kept ('at json')
-- Errors: not_found
local tid, rid = ARGV[1], ARGV[2]
local t = load(K('task:', tid))
if not t then return refuse('not_found', 'kind', 'task') end
local runs = runs_of(tid, t, 100)
if rid ~= '' then
  if call('HGET', K('run:', rid), 'task') ~= tid then return refuse('not_found', 'kind', 'run') end
  runs = { rid }
end
local out, size = {}, 0
for i = #runs, 1, -1 do
  local kept = call('GET', K('evidence:', runs[i]))
  if kept then
    size = size + #kept
    if size > MAX_REPLY and #out > 0 then break end
    out[#out + 1] = named{ run = runs[i], kept = kept }
  end
end
return out
