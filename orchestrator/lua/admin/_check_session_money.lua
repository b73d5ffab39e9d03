-- needs: check_money findings money sessionmoney
-- What has to be true of the money of agent sessions: what is reserved for them is reserved by prompts that are
-- open, or by calls under way.

-- check_prompt_envelope looks at an envelope that is listed as that of an open prompt.
local function check_prompt_envelope(set, pid)
  local e = envelope(pid)
  if not e.parent or e.closed == '1' then return check_member('prompt_envelope', K(set), pid, false) end
  local state = call('HGET', K('prompt:', pid), 'state')
  if state ~= 'queued' and state ~= 'accepted' then
    report_violation('envelope_kept', pid, 'the prompt is ' .. (state or 'gone') .. ', and ' .. F(num(e.available_u)) ..
      ' nano-dollars are reserved for it', function() session_money.close(pid) end)
  end
  check_account(pid, e)
  check_held_calls(pid, e)
end

-- check_session_day looks at an envelope of a day that prompts are carved from, as at the day's envelope of tasks.
local function check_session_day(set, id)
  check_day(set, id)
  if string.sub(id, 1, 6) == 'house:' or call('ZCARD', K('children:', id)) > ROOM then return end
  for _, child in ipairs(call('ZRANGE', K('children:', id), 0, -1)) do
    if string.sub(child, 1, 7) == 'prompt_' then
      local e = envelope(child)
      if e.parent and e.closed ~= '1' then check_member('prompt_envelope', K('prompt-envelopes'), child, true, NOW) end
      check_account(child, e)
    end
  end
end
