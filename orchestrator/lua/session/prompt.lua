-- flags: allow-oom
-- needs: prompt_row
-- prompt shows a prompt of a session, and its answer from a byte on.
-- alone
-- ARGV: session, prompt, byte
-- Reply: prompt_row
-- Errors: not_found
local row = prompt_row(ARGV[2], num(ARGV[3]))
if not row or call('HGET', K('prompt:', ARGV[2]), 'session') ~= ARGV[1] then -- @prompt-of-session
  return refuse('not_found', 'kind', 'prompt')
end
return row
