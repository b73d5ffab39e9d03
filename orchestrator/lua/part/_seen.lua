-- The last 32 requests of a run that were taken are known by their ids, so that a repeat gets the same answer.

-- seen_before finds the answer of a request, or refuses one that came with another content.
local function seen_before(rid, req, hash)
  if req == '' then return nil end
  for _, was in ipairs(call('LRANGE', K('seen:', rid), 0, 31)) do
    local before, answer, id = string.match(was, '^(%S+) (%S+) (.*)$')
    if id == req then -- @same-report
      if before ~= hash then return nil, refuse('idempotency_conflict') end
      return answer
    end
  end
end

-- note_seen notes the answer of a request.
local function note_seen(rid, req, hash, answer)
  if req == '' then return end
  call('LPUSH', K('seen:', rid), hash .. ' ' .. answer .. ' ' .. req)
  call('LTRIM', K('seen:', rid), 0, 31) -- @recognised-reports
end
