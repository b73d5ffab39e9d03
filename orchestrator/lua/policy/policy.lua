-- flags: allow-oom
-- needs: policy
-- policy shows the wake policy of an agent name, or one of its revisions.
-- alone
-- ARGV: agent name, revision id, or '' for the policy
-- Reply: raw, rows (the policy_row; none if the name has no policy); of the policy also name, newest (id of the
--   newest revision, or ''), over (see change_policy), file (what its file has in place of it, as JSON, or '')
-- Errors: revision_not_found
local name, id = ARGV[1], ARGV[2]
if id == '' then return (policy_state(name)) end
local kept = call('ZSCORE', K('policy-revisions:', name), id)
if not kept then return refuse('revision_not_found') end -- @revision-of-name
return named{ raw = RAW, rows = { (policy_row(id)) } }
