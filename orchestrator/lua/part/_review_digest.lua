-- What a reviewer is shown of a task, as one digest that a decision carries.

-- review_digest names what the completing run handed in, as
-- <result>-<changes>-<exits>-<replaced>: the hash of its result, the SHA-256 of its
-- evidence or none, how often its exit was reported, and how often the evidence
-- was replaced. Evidence of an earlier version has no SHA-256 in the record, so
-- its SHA-1 takes that place. It also returns whether there is evidence.
local function review_digest(t)
  local r = call('HMGET', K('run:', t.run), 'closed', 'evidence', 'exits', 'replaced')
  local result = string.match(r[1] or '', '^complete:(%x+)') or 'none'
  local kept = not r[2] and call('GET', K('evidence:', t.run))
  local changes = r[2] or kept and redis.sha1hex(kept)
  return result .. '-' .. (changes or 'none') .. '-' .. (r[3] or '0') .. '-' .. (r[4] or '0'), -- @digest
    changes and true or false
end

-- check_digest refuses a decision whose digest is not the current one. A task without
-- evidence can be decided without a digest.
local function check_digest(id, t, presented)
  local current, evidence = review_digest(t)
  if presented == current or presented == '' and not evidence then return nil end -- @same-digest
  return refuse(presented == '' and 'precondition_required' or 'version_conflict', 'kind', 'review', 'taskId', id,
    'presented', presented, 'current', current)
end
