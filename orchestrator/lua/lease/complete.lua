-- flags: allow-oom
-- needs: complete
-- complete ends the lease with an output: the task goes to review, or is
-- completed when nobody reviews it. A repeat gets the same answer.
-- ARGV: task, run, secret, presented token, content hash, output JSON {output, summary},
--   what happens to open subtasks: detach, cancel or '', the beginning of the summary, 1 if the output is a message
--   that answers the client
-- Reply: state
-- Errors: those of fenced; children_open, state_conflict (the client takes no message, or not any more)
return complete(ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9] == '1')
