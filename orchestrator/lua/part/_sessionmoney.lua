-- needs: money
-- Money of agent sessions. Each prompt has an envelope of its own, which is carved from the envelope of
-- the day of its agent name: wake:NAME:DAY for wakes, prompt:NAME:DAY for prompts of people. That one is carved
-- from sessions:DAY, and this from the envelope of the day of all tasks, if there is one. The two in the middle
-- are closed from the beginning, so that what a prompt gives back passes through them.

-- limits, in the functions below, has in nano-dollars: namespace (of all sessions on a day), names (by agent
-- name) and others (for every other name). A name has wake and prompt (on a day) and each (of one prompt).
local session_money = {}
do -- a script has room for few local functions

-- session_envelopes are the ids of the envelopes of today from which a prompt is carved.
local function session_envelopes(kind, name)
  return kind .. ':' .. (name ~= '' and name or '-') .. ':' .. today(), 'sessions:' .. today()
end

local function limits_of(name, limits) return limits.names[name] or limits.others end

-- taken is what is reserved and spent of an envelope that others are carved from, in nano-dollars, and what is spent.
local function taken(id)
  local e = envelope(id)
  return num(e.granted_u) - num(e.available_u), num(e.total_u)
end

-- day_left is what the envelope of a day of all tasks has left, or nil if there is none. cap is its limit as
-- in day_envelope.
local function day_left(cap, day)
  if cap == '' then return nil end
  local t, u = string.match(cap, '^(%d+) (%d+)$')
  local e = envelope('house:' .. day)
  return num(t) - num(e.cap_t) + num(e.available_t), num(u) - num(e.cap_u) + num(e.available_u)
end

-- session_money.left is how much the prompts of a kind have left today, in nano-dollars, and how much they would have
-- if no prompt that is open had reserved anything. It also returns the envelope that has the least of each, and
-- writes nothing.
function session_money.left(kind, name, limits, cap)
  local own, all = session_envelopes(kind, name)
  local left, unspent, short, spent = math.huge, math.huge, nil, nil
  local function bound(id, here, later)
    if here < left then left, short = here, id end
    if later < unspent then unspent, spent = later, id end
  end
  local taken_u, spent_u = taken(own)
  local limit = limits_of(name, limits)[kind]
  bound(own, limit - taken_u, limit - spent_u) -- @bounds-name
  taken_u, spent_u = taken(all)
  bound(all, limits.namespace - taken_u, limits.namespace - spent_u) -- @bounds-sessions-of-day
  local _, day = day_left(cap, today())
  if day then bound('house:' .. today(), day, day + taken_u - spent_u) end -- @bounds-day-of-sessions
  return left, unspent, unspent <= 0 and spent or short
end

-- session_money.admits reports whether a prompt may begin: something has to be left to spend. A metered session also
-- needs something that no other prompt has reserved.
function session_money.admits(left, unspent, metered)
  return unspent > 0 and (left > 0 or metered ~= '1') -- @admits-with-money
end

-- session_money.refusal is the refusal of a prompt of a person for which nothing is left.
function session_money.refusal(name, metered, limits, cap)
  local left, unspent, short = session_money.left('prompt', name, limits, cap)
  if session_money.admits(left, unspent, metered) then return nil end -- @refuses-unpaid-prompt
  local each = limits_of(name, limits).each
  return refuse('budget_exceeded', 'envelope', short, 'dimension', 'usd', 'need', F(each), 'available', F(left), 'held',
    F(unspent - left), 'less_t', '0', 'less_u', F(math.max(1, each - left)))
end

-- grant gives a prompt more, out of all that it is carved from.
local function grant(pid, t, u)
  local e = envelope(pid)
  for _, column in ipairs({ 'granted', 'available', 'envelope' }) do add_amount(e, column, t, u) end
  local id = e.parent
  while id ~= '' do
    local p = envelope(id)
    add_amount(p, 'carved', t, u)
    if p.closed ~= '1' then
      add_amount(p, 'available', -t, -u) -- @takes-from-day
      return
    end
    local back_t, back_u = num(p.available_t), num(p.available_u) -- given back to it before
    if p.parent ~= '' then back_t, back_u = 0, 0 end
    add_amount(p, 'available', -back_t, -back_u)
    add_amount(p, 'granted', t - back_t, u - back_u) -- @grants-through
    id = p.parent
  end
end

-- open_through begins an envelope that others are carved from, which is closed from the beginning.
local function open_through(id, parent)
  local e = envelope(id)
  if e.parent then return e end
  new_envelope(e, parent)
  put(e, 'closed', '1')
  call('ZADD', K('houses'), NOW, id)
  if parent ~= '' then call('ZADD', K('children:', parent), meta.seq, id) end
  return e
end

-- join_day carves the envelope of all sessions from the day's, if it was made before there was a daily limit.
local function join_day(all, house)
  local e, h = envelope(all), envelope(house)
  local t, u = num(e.granted_t) - num(e.available_t), num(e.granted_u) - num(e.available_u)
  add_amount(e, 'granted', -num(e.available_t), -num(e.available_u))
  add_amount(e, 'available', -num(e.available_t), -num(e.available_u))
  add_amount(h, 'available', -t, -u)
  add_amount(h, 'carved', t, u)
  add_amount(h, 'total', num(e.total_t), num(e.total_u))
  put(e, 'parent', house)
  call('ZADD', K('children:', house), meta.seq, all)
end

-- session_money.reserve carves the envelope of a prompt: what one prompt may spend, or what is left of it. role is
-- that of the agent, under which the spending of the day counts. An event was written before.
function session_money.reserve(pid, kind, name, role, limits, cap)
  local left = session_money.left(kind, name, limits, cap)
  local amount = math.max(0, math.min(left, limits_of(name, limits).each)) -- @reserves-what-is-left
  local own, all = session_envelopes(kind, name)
  local house = day_envelope(cap)
  if open_through(all, house).parent == '' and house ~= '' then join_day(all, house) end -- @joins-day
  open_through(own, all)
  local e = new_record(K('env:', pid), {})
  new_envelope(e, own)
  put(e, 'role', role, 'granted_u', '0', 'available_u', '0')
  call('ZADD', K('children:', own), meta.seq, pid)
  call('ZADD', K('prompt-envelopes'), NOW, pid) -- @lists-envelope
  grant(pid, 0, amount)
end

-- session_money.check_tokens is the refusal of a call that needs so many tokens more, if the day of its prompt has
-- fewer. A prompt may go on after midnight.
function session_money.check_tokens(pid, t, cap)
  local day = string.match(envelope(pid).parent or '', '[^:]+$') or today() -- @tokens-of-own-day
  local left = day_left(cap, day)
  if left and t > left then -- @bounds-tokens-of-day
    return refuse('budget_exceeded', 'envelope', 'house:' .. day, 'dimension', 'tokens', 'need', F(t),
      'available', F(left), 'held', '0', 'spent', '0', 'less_t', F(t - left), 'less_u', '0')
  end
end

-- session_money.add_tokens grants a prompt tokens, which only the envelope of the day limits.
function session_money.add_tokens(pid, t) grant(pid, t, 0) end

-- session_money.close gives back what a prompt has not spent, once, if the verb succeeds. What its calls under way
-- have reserved stays reserved until they are settled.
function session_money.close(pid)
  local e = envelope(pid)
  if not e.parent or e.closed == '1' then return end -- one from before prompts had envelopes has none
  defer(function() call('ZREM', K('prompt-envelopes'), pid) end) -- @unlists-envelope
  close_envelope(pid) -- @gives-back
end
end
