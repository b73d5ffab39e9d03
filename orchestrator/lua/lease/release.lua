-- flags: allow-oom
-- needs: end_lease eventbudget fence retry_policy
-- reads: task 1, run 2, deadlines 1
-- release gives a lease back with the exit of its process. The retry policy decides the next state
-- of the task. A repeat gets the same answer.
-- ARGV: task, run, secret, presented token, content hash, class, exit code or
--   '', signal or '', duration ms or '', detail, last event ('' | none | =id)
-- Reply: state
-- Errors: those of fenced
local tid, rid = ARGV[1], ARGV[2]
local t, r, deadline, err = fenced(tid, rid, ARGV[3], ARGV[4]) -- @release-is-fenced
if err then return repeated_answer(tid, rid, ARGV[3], 'release', ARGV[5]) or err end
local class, code, signal = ARGV[6], ARGV[7], ARGV[8]
end_lease(tid, rid, class == 'released' and 'released' or 'failed', class, deadline)
-- The release comes after the process is dead, so nothing waits for an exit.
record_exit(rid, r, ARGV[11])
put(r, 'code', code, 'signal', signal, 'duration', ARGV[9])
if ARGV[10] ~= '' then call('SET', K('detail:', rid), ARGV[10]) end
local state, failures, facts = apply_retry_policy(tid, t, rid, class, true)
put(r, 'closed', 'release:' .. ARGV[5] .. ' ' .. state) -- @closed-release
local exit = '{"class":' .. quote(class) .. ',"code":' .. (code == '' and 'null' or code) ..
    ',"signal":' .. (signal == '' and 'null' or quote(signal)) .. '}'
emit('lease.released', { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid, reason = class },
  '{"state":' .. quote(state) .. ',"failures":' .. F(failures) .. ',"reason":' .. quote(class) .. ',"exit":' .. exit ..
  facts .. '}')
return state
