-- needs: money
-- Deleting the money of what ended long ago, a bite of the ledger at a time.
local ROWS = 1000

-- delete_ledger_rows deletes rows of the ledger; it returns whether none is left. Rows that
-- count_spending has not counted yet stay.
local function delete_ledger_rows(id)
  local rows = call('ZRANGE', K('ledger-of:', id), 0, ROWS - 1)
  if #rows == 0 then return true end
  if num(rows[#rows]) > num(call('HGET', META, 'spending')) then return false end -- @keeps-uncounted
  call('ZREM', K('ledger-of:', id), unpack(rows))
  for i, seq in ipairs(rows) do rows[i] = seq .. '-0' end
  call('XDEL', K('ledger'), unpack(rows))
  return #rows < ROWS
end

local function delete_envelope(id)
  call('DEL', K('env:', id), K('children:', id), K('ledger-of:', id), K('usage:', id .. ':session'), K('calls:', id),
    K('inflight:', id), K('gated:', id))
end

-- delete_money deletes what a task has, when no call is open any more. What it
-- had spent is spent by what it was carved from then, so the books stay exact.
local function delete_money(id)
  if call('ZCARD', K('calls:', id)) > 0 or not delete_ledger_rows(id) then return false end
  local e = envelope(id)
  local p = e.parent and e.parent ~= '' and envelope(e.parent)
  if p and p.parent then
    local t, u = num(e.granted_t), num(e.granted_u)
    add_amount(p, 'carved', -t, -u)
    add_amount(p, 'spent', t, u)
    save() -- before the parent may be deleted as well
    call('ZREM', K('children:', e.parent), id)
  end
  delete_envelope(id)
  return true
end

-- delete_spending deletes the totals of up to limit days; it returns how many.
local function delete_spending(before, limit)
  local days = call('ZRANGEBYSCORE', K('spending-days'), '-inf', before, 'LIMIT', 0, limit)
  for _, day in ipairs(days) do
    call('DEL', K('spending:', day), K('spending-by-label:', day))
    call('ZREM', K('spending-days'), day)
  end
  return #days
end

-- delete_prompts deletes the envelopes of up to limit prompts that were carved from one of a day. It reports whether
-- none is left.
local function delete_prompts(id, limit)
  for _, child in ipairs(call('ZRANGE', K('children:', id), 0, limit - 1)) do
    if string.sub(child, 1, 7) == 'prompt_' and envelope(child).closed == '1' then delete_money(child) end
  end
  return call('ZCARD', K('children:', id)) == 0
end

-- delete_days deletes up to limit days that nothing is left of; it returns
-- how many.
local function delete_days(before, limit)
  local n = 0
  for _, id in ipairs(call('ZRANGEBYSCORE', K('houses'), '-inf', before, 'LIMIT', 0, limit)) do
    if delete_prompts(id, limit) and delete_money(id) then
      call('ZREM', K('houses'), id)
      n = n + 1
    end
  end
  return n
end
