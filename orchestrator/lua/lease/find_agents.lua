-- flags: allow-oom
-- needs: fence toolcalls unread
-- reads: task 1, run 2, deadlines 1
-- find_agents tells the holder of a lease to whom it can delegate: the pools with members that take
-- tasks, without naming any of them. Workers of the role attached take only tasks of their own.
-- alone
-- ARGV: task, run, secret, presented token, request id or '', the call in words, hash of the arguments, role or '',
--   capability that is needed...
-- Reply: pools (role, members, free, unlimited 0|1, caps (a,b)), cut (1 when there are more), nudge (JSON or
--   ''), unread; or {} when this call ended the run
-- Errors: those of fenced
local POOLS, LOOKS, CAPS = 50, 500, 64
local t, r, deadline, err = fenced(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if err then return err end
deadline = confirm_lease(ARGV[1], r, deadline)
local nudge = note_tool_call(ARGV[1], ARGV[2], t, r, deadline, 'find_agents ' .. ARGV[7], ARGV[6], '', ARGV[5], true)
if not nudge then return {} end

-- has_all tells whether capabilities, as a,b, include all that are needed.
local function has_all(caps)
  for i = 9, #ARGV do
    if not string.find(',' .. caps .. ',', ',' .. ARGV[i] .. ',', 1, true) then return false end -- @has-needs
  end
  return true
end

local looked = 0
local function pool_of(role)
  local pool = { role = role, members = 0, free = 0, unlimited = 0, cut = 0 }
  local caps, known = {}, {}
  for _, status in ipairs({ 'active', 'unhealthy' }) do
    local ids = call('ZRANGE', K('roster:', status .. '|' .. role), 0, LOOKS - looked)
    if #ids > LOOKS - looked then pool.cut, ids[#ids] = 1, nil end
    looked = looked + #ids
    for _, id in ipairs(ids) do
      local a = pick(K('agent:', id), 'status', 'caps', 'max', 'load')
      if a.status and has_all(a.caps or '') then
        pool.members = pool.members + 1
        if status == 'active' and (a.max or '') == '' then pool.unlimited = 1 end
        if status == 'active' then pool.free = pool.free + math.max(0, num(a.max) - num(a.load)) end
        for cap in string.gmatch(a.caps or '', '[^,]+') do
          if not known[cap] and #caps < CAPS then
            known[cap], caps[#caps + 1] = true, cap
          end
        end
      end
    end
  end
  table.sort(caps)
  pool.caps = table.concat(caps, ',')
  return pool
end

local roles, cut = { ARGV[8] }, 0
if ARGV[8] == '' then
  roles = call('ZRANGE', K('pools') .. ':names', '(', '+', 'BYLEX', 'LIMIT', 0, POOLS + 1)
  if #roles > POOLS then cut, roles[#roles] = 1, nil end
end
local pools = {}
for _, role in ipairs(roles) do
  local pool = role ~= 'attached' and pool_of(role) -- @finds-no-attached
  if pool then
    cut, pool.cut = math.max(cut, pool.cut), nil
  end
  if pool and pool.members > 0 then pools[#pools + 1] = named(pool) end
end
return named{ pools = pools, cut = cut, nudge = nudge, unread = unread_of(ARGV[1], r) }
