-- needs: findings money queue
-- What has to be true of the money of one task, or of one day's house.
local ROOM = 1000 -- calls and children that are added up; beyond that the sum is not looked at

-- check_account: granted is available, held, spent and carved. Only available
-- may be less than nothing, after a call that cost more than it had reserved.
local function check_account(id, e)
  for _, dim in ipairs({ 't', 'u' }) do
    local granted, available, held = num(e['granted_' .. dim]), num(e['available_' .. dim]), num(e['held_' .. dim])
    local spent, carved = num(e['spent_' .. dim]), num(e['carved_' .. dim])
    if granted ~= available + held + spent + carved or math.min(granted, held, spent, carved) < 0 then
      report_violation('books_differ', id, 'of ' .. F(granted) .. ' granted (' .. dim .. ') ' .. F(available) ..
        ' are available, ' .. F(held) .. ' held, ' .. F(spent) .. ' spent, ' .. F(carved) .. ' carved')
    end
  end
  if e.closed == '1' and e.parent ~= '' and (num(e.available_t) ~= 0 or num(e.available_u) ~= 0)
      and envelope(e.parent).parent then
    report_violation('not_given_back', id, 'it is closed, and ' .. e.available_t .. ' tokens and ' .. e.available_u ..
      ' nano-dollars are in it')
  end
end

-- check_total: what all of an envelope has spent is what it has spent itself
-- and what all of its children have. One from before this was kept gets its
-- total when all of these have theirs, and that is not damage.
local function check_total(id, e, t, u)
  local function repair()
    put(e, 'total_t', F(t), 'total_u', F(u))
  end
  if not e.total_u then
    if repairs() then repair() end
  elseif t ~= num(e.total_t) or u ~= num(e.total_u) then
    report_violation('total_differs', id, F(num(e.total_t)) .. ' tokens and ' .. F(num(e.total_u)) ..
      ' nano-dollars are counted, ' .. F(t) .. ' and ' .. F(u) .. ' were spent', repair)
  end
end

-- check_carved: what was carved from an envelope is what its children were
-- granted.
local function check_carved(id, e)
  if call('ZCARD', K('children:', id)) > ROOM then return end
  local t, u, summed = 0, 0, true
  local total_t, total_u = num(e.spent_t), num(e.spent_u)
  for _, child in ipairs(call('ZRANGE', K('children:', id), 0, -1)) do
    local c = call('HMGET', K('env:', child), 'granted_t', 'granted_u', 'total_t', 'total_u')
    t, u = t + num(c[1]), u + num(c[2])
    total_t, total_u, summed = total_t + num(c[3]), total_u + num(c[4]), summed and c[4]
  end
  if summed then check_total(id, e, total_t, total_u) end
  if t ~= num(e.carved_t) or u ~= num(e.carved_u) then
    report_violation('carved_differs', id, F(num(e.carved_t)) .. ' tokens and ' .. F(num(e.carved_u)) ..
      ' nano-dollars are carved, its children have ' .. F(t) .. ' and ' .. F(u))
  end
end

-- check_held_leases: what is held is what the calls under way have reserved. A call
-- that nothing would settle any more comes back to the list of those that do.
local function check_held_calls(id, e)
  if call('ZCARD', K('calls:', id)) > ROOM then return end
  local t, u = 0, 0
  for _, cid in ipairs(call('ZRANGE', K('calls:', id), 0, -1)) do
    local h = call('HMGET', K('hold:', id .. ':' .. cid), 'state', 'need_t', 'need_u', 'deadline')
    if h[1] == 'open' then
      t, u = t + num(h[2]), u + num(h[3])
      check_member('hold', K('holds'), id .. ':' .. cid, true, h[4])
    else
      report_violation('call_extra', id, 'call ' .. cid .. ' is listed as under way, but it is ' .. (h[1] or 'gone'),
        function()
        call('ZREM', K('calls:', id), cid)
      end)
    end
  end
  if t ~= num(e.held_t) or u ~= num(e.held_u) then
    report_violation('held_differs', id, F(num(e.held_t)) .. ' tokens and ' .. F(num(e.held_u)) ..
      ' nano-dollars are held, its calls have reserved ' .. F(t) .. ' and ' .. F(u))
  end
  for _, cid in ipairs(call('ZRANGE', K('inflight:', id), 0, ROOM)) do
    if call('HGET', K('hold:', id .. ':' .. cid), 'state') ~= 'open' then
      report_violation('inflight_extra', id, 'call ' .. cid .. ' keeps the next lease waiting, but it is over',
        function()
        call('ZREM', K('inflight:', id), cid)
        requeue_after_calls(id)
      end)
    end
  end
end

local function check_money(id, t)
  local e = envelope(id)
  if not e.parent then
    report_violation('envelope_missing', id, 'it has no envelope')
    return
  end
  if (e.closed == '1') ~= (TERMINAL[t.state] or false) then
    report_violation('envelope_state', id, 'it is ' .. t.state .. ', and its envelope is ' ..
      (e.closed == '1' and 'closed' or 'open'))
  end
  check_account(id, e)
  check_carved(id, e)
  check_held_calls(id, e)
end

local function check_day(_, id)
  local e = envelope(id)
  if not e.parent then return report_violation('envelope_missing', id, 'the day has no envelope') end
  check_account(id, e)
  check_carved(id, e)
end

-- An entry of holds that no open call belongs to would be looked at by every
-- sweep.
local function check_reservation(set, member)
  local state = call('HGET', K('hold:', member), 'state')
  if state ~= 'open' then check_member('hold', K(set), member, false) end
end
