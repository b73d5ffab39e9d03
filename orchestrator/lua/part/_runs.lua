-- The runs of a task. The last one is named in its record, and the list of runs has those before it. In stores of
-- earlier versions the list has the last one, too.

-- runs_of lists the last runs of a task, up to n before the last one, oldest first.
local function runs_of(id, t, n)
  local runs = call('LRANGE', K('runs:', id), -n, -1)
  if t.run and t.run ~= '' and runs[#runs] ~= t.run then runs[#runs + 1] = t.run end
  return runs
end

-- list_last_run puts the last run of a task into the list, before the next one begins.
local function list_last_run(id, t)
  if t.run == '' then return end
  if call('LINDEX', K('runs:', id), -1) ~= t.run then call('RPUSH', K('runs:', id), t.run) end
end
