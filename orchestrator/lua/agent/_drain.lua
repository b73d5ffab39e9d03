-- needs: agent
-- emit_command is the word about a command in the log; was is what waited under
-- its id before, is what does now.
local function emit_command(id, cid, state, request, actor, reason, was, is)
  emit('agent.command', { agent = id, actor = actor, reason = reason }, '{"state":' .. quote(state) ..
    ',"commandId":' .. quote(cid) .. ',"request":' .. request .. ',"before":{"pending":' .. was ..
    '},"after":{"pending":' .. is .. '}}')
end

-- handle_command takes a pending command off the list; it returns what it was.
local function handle_command(id, a, cid, actor)
  local request = call('HGET', K('commands:', id), cid)
  if not request then return nil end
  call('HDEL', K('commands:', id), cid) -- @removes-command
  put(a, 'commands', F(num(a.commands) - 1))
  if a.drain_command == cid then put(a, 'drain_command', '') end
  emit_command(id, cid, 'handled', request, actor, '', request, 'null')
  return cjson.decode(request)
end

-- begin_drain takes an agent out of service, for timeout seconds or, where that is '', for as long
-- as the order to drain or its registration says. An agent that holds nothing only waits for its
-- next heartbeat, whose answer reports the drain.
local function begin_drain(id, a, timeout, actor)
  pick(a[1], 'drain', 'drain_command', 'commands')
  set_agent_status(id, a, 'draining', 'drain_initiated', actor)
  local ordered = a.drain_command ~= '' and handle_command(id, a, a.drain_command, actor) or {} -- @handles-drain
  if timeout == '' then timeout = ordered.drain_timeout_seconds or a.drain end
  if timeout == '' then timeout = 120 end
  local ends = now + num(timeout) * 1000
  local due = call('ZCARD', leases_key(id, a)) == 0 -- @drain-due
    and math.min(ends, now + num(a.interval) * 1000) or ends
  put(a, 'drain_until', F(ends), 'drain_due', F(due))
end
