-- exec: processes that a run is asked to start. exec:<run> holds those whose
-- result is not there, each with the deadline of its call.

-- pending_execs lists the processes that the adapter of a run has to start and does not know yet:
-- left (ms to the deadline of the call) and order (JSON) of each. known is ',id,id,'.
local function pending_execs(rid, r, known)
  local out = {}
  if num(r.execs) == 0 then return out end
  local flat = call('HGETALL', K('exec:', rid))
  for i = 1, #flat, 2 do
    local deadline, order = string.match(flat[i + 1], '^(%d+) (.*)$')
    if now < num(deadline) and not string.find(known, ',' .. flat[i] .. ',', 1, true) then
      out[#out + 1] = named{ left = F(num(deadline) - now), order = order }
    end
  end
  return out
end
