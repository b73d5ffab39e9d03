-- flags: allow-oom
-- totals reads what was counted by role and model. Its size is bounded by the number of names.
-- alone
-- ARGV: none
-- Reply: field and figure of each
return call('HGETALL', K('totals'))
