-- inboxes_of_run are those that a run reads: that of its task, and that of its agent if the agent is
-- registered. A run that is not under a registration could name any agent.
local function inboxes_of_run(tid, r)
  pick(r[1], 'agent', 'incarnation')
  if num(r.incarnation) == 0 then return { tid } end -- @inbox-of-registered
  return { tid, r.agent }
end

-- oldest_unread are the ids of the messages that have waited longest for a run, in their order.
local function oldest_unread(tid, r, most)
  local all, ids = {}, {}
  for _, inbox in ipairs(inboxes_of_run(tid, r)) do
    local got = call('ZRANGE', K('unread:', inbox), 0, most - 1, 'WITHSCORES')
    for i = 1, #got, 2 do all[#all + 1] = { got[i], num(got[i + 1]) } end
  end
  table.sort(all, function(a, b) return a[2] < b[2] end) -- @oldest-first
  for i = 1, math.min(most, #all) do ids[i] = all[i][1] end
  return ids
end

-- newest_unread is the number of the last message that a run has not read, or nil.
local function newest_unread(tid, r)
  if not has_messages() then return nil end
  local newest
  for _, inbox in ipairs(inboxes_of_run(tid, r)) do
    local last = call('ZRANGE', K('unread:', inbox), -1, -1, 'WITHSCORES')[2]
    if last and num(last) > num(newest) then newest = last end
  end
  return newest
end
