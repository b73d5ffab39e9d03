-- Deleting from the head of the event log, by age and by the number of events.

-- last_of is the number of the last event of an entry, and first_of that of its first one.
local function last_of(e) return num(string.match(e[1], '^%d+')) end
local function first_of(e) return last_of(e) - (e[2][1] == '1' and #e[2] / 2 - 1 or 0) end

-- is_old reports whether the events of an entry are older than an age. They are of one call, so the first one
-- tells it. Store time is the fourth of its values.
local function is_old(e, than)
  if e[2][1] == '1' then
    local from, at, length = 1, nil, nil
    for _ = 1, 4 do
      length, from = string.match(e[2][2], '^(%d+):()', from)
      at, from = string.sub(e[2][2], from, from + num(length) - 1), from + num(length)
    end
    return num(at) < now - than -- @age-of-packed
  end
  for i = 1, #e[2], 2 do
    if e[2][i] == 'now' then return num(e[2][i + 1]) < now - than end
  end
end

-- read_unnoted returns the number up to which an earlier version may have left gaps that it did not note, and how
-- many entries the log has up to there. Almost all of them have one event.
local function read_unnoted()
  local to, entries = string.match(call('HGET', META, 'unnoted') or '', '^(%d+):(%d+)$')
  if to then return num(to), num(entries) end
  entries = call('XLEN', K('events'))
  call('HSET', META, 'unnoted', F(num(meta.seq)) .. ':' .. F(entries))
  return num(meta.seq), entries
end

-- read_gaps returns the gaps between the numbers after from, in order. Adoptions leave them. Each has its last number
-- and its width.
local function read_gaps(from)
  local gaps, sum = {}, 0
  for last, width in string.gmatch(call('HGET', META, 'gaps') or '', '(%d+):(%d+)') do
    if num(last) > from then
      gaps[#gaps + 1] = { last = num(last), width = num(width) }
      sum = sum + num(width)
    end
  end
  return gaps, sum
end

-- trim_events deletes the entries up to a number. It returns how many there were, and the number of the last event.
local function trim_events(cut)
  local last = call('XREVRANGE', K('events'), F(cut) .. '-0', '-', 'COUNT', 1)[1]
  if not last then return 0 end
  local entries = call('XTRIM', K('events'), 'MINID', F(cut + 1) .. '-0')
  call('HSET', META, 'trimmed', F(last_of(last))) -- @marks-deleted
  return entries, last_of(last)
end

-- old_up_to returns the number up to which the events are older than an age. A whole bite is when its last event is,
-- so it is not read. Otherwise about limit events are read.
local function old_up_to(head, age, bite, limit)
  local probe = call('XRANGE', K('events'), F(first_of(head) + bite - 1) .. '-0', '+', 'COUNT', 1)[1]
  if probe and is_old(probe, age) then return first_of(head) + bite - 1 end
  local cut = 0
  local most = math.max(last_of(head), first_of(head) + limit - 1)
  for _, e in ipairs(call('XRANGE', K('events'), '-', F(most), 'COUNT', limit)) do
    if not is_old(e, age) then break end
    cut = last_of(e)
  end
  return cut
end

-- delete_events deletes events that are older than an age, or more than max, and returns how many. What goes is known
-- by its numbers, without a look at each event. An entry goes as a whole, so up to one entry more than max stays.
local function delete_events(age, max, limit)
  local BITE = 10000
  local head = call('XRANGE', K('events'), '-', '+', 'COUNT', 1)[1]
  if not head then return 0 end
  local first = first_of(head)
  local to, entries = read_unnoted()
  local counted = first > to
  if counted then to, entries = first - 1, 0 end
  local gaps, width = read_gaps(to)
  -- The width is too large if one of the gaps stands for several, and some of these are deleted. The log has at least
  -- as many events as entries.
  local spare = entries + num(meta.seq) - to - width - max -- @counts-no-gaps
  local passes = counted and spare > 0
  if spare <= 0 then spare = math.max(call('XLEN', K('events')) - max, 0) end
  local cut = first - 1 + math.min(spare, BITE)
  if passes then
    for _, gap in ipairs(gaps) do
      if cut > gap.last - gap.width then cut = cut + gap.width end
    end
  end
  cut = math.max(cut, old_up_to(head, age, BITE, limit))
  if not counted then cut = math.min(cut, to) end
  local trimmed, last = trim_events(cut)
  if not last then return 0 end
  if not counted then
    call('HSET', META, 'unnoted', F(to) .. ':' .. F(entries - trimmed)) -- most of them have one event
    return trimmed
  end
  local deleted, left = last - first + 1, {}
  for _, gap in ipairs(gaps) do
    if gap.last < last then
      deleted = deleted - gap.width
    else
      left[#left + 1] = F(gap.last) .. ':' .. F(gap.width) .. ' '
    end
  end
  if #left < #gaps then call('HSET', META, 'gaps', table.concat(left)) end
  return math.max(deleted, trimmed)
end
