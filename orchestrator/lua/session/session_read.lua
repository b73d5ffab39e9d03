-- needs: capability message
-- session_read answers an agent session the messages that have waited longest for its agent, and acknowledges
-- them in the same step. The same request again gets the same messages.
-- alone
-- ARGV: prompt, hash of the capability, request id, most messages, peek 0|1
-- Reply: rows (message_row), unread
-- Errors: session_capability_invalid
local p, _, err = capability(ARGV[1], ARGV[2])
if err then return err end
pick(p[1], 'read_by', 'read_ids')
local ids = {}
if p.read_by == ARGV[3] then -- @session-reads-again
  for id in string.gmatch(p.read_ids, '%S+') do ids[#ids + 1] = id end
else
  ids = call('ZRANGE', K('unread:', p.agent), 0, num(ARGV[4]) - 1)
  if ARGV[5] == '0' and #ids > 0 then -- @session-peeks
    acknowledge_messages(ids)
    put(p, 'read_by', ARGV[3], 'read_ids', table.concat(ids, ' '), 'worked', '1') -- @session-remembers-read
  end
end
return named{ rows = (message_rows(ids)), unread = call('ZCARD', K('unread:', p.agent)) }
