-- needs: policy
-- change_policy adds a revision to the wake policy of an agent name, if the policy is still the one that
-- the caller has read. A deletion is a revision without a text.
-- ARGV: agent name, id of the revision that is the policy now or '', id of the new revision,
--   action: write, delete or rollback, id of the revision that a rollback restores or '', text, its digest,
--   actor, request key, body hash, over (digest of the file in place of which it is written, '-' for a file
--   that is gone, or '')
-- Reply: policy_row of the new revision. The same request again changes nothing.
-- Errors: heartbeat_conflict, heartbeat_no_policy (nothing can be deleted), state_conflict (too many names),
--   idempotency_conflict, revision_not_found (the one that the same request made is not kept any more)
local name, expected, id, action, restored, text = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local digest, actor, key, body, over = ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local was, err = find_request(key, body)
if err then return err end
if was then return (policy_row(was)) or refuse('revision_not_found') end
local current = current_revision(name)
if action == 'delete' and current == '' and over == '' then -- @deletes-what-is-there
  return refuse('heartbeat_no_policy')
end
if current ~= expected then return refuse('heartbeat_conflict') end -- @same-policy

-- forget deletes a name that has no policy any more, with its revisions.
local function forget(gone)
  for _, old in ipairs(call('ZRANGE', K('policy-revisions:', gone), 0, -1)) do
    call('DEL', K('policy-revision:', old))
  end
  call('DEL', K('policy:', gone), K('policy-revisions:', gone))
  call('ZREM', K('policies'), gone)
  call('ZREM', K('deleted-policies'), gone)
end

if not call('ZSCORE', K('policies'), name) then
  if call('ZCARD', K('policies')) >= MOST_NAMES then -- @bounds-policies
    local oldest = call('ZRANGE', K('deleted-policies'), 0, 0)[1]
    if not oldest then return refuse('state_conflict.policy_limit', 'kind', 'policy', 'limit', F(MOST_NAMES)) end
    forget(oldest)
  end
  call('ZADD', K('policies'), NOW, name)
end
local function digest_json(of) return of ~= '' and '{"digest":' .. quote(of) .. '}' or 'null' end
local before = current ~= '' and call('HGET', K('policy-revision:', current), 'digest') or ''
local kinds = { write = 'heartbeat_policy.written', delete = 'heartbeat_policy.deleted',
  rollback = 'heartbeat_policy.rolled_back' }
emit(kinds[action], { actor = actor }, '{"agentName":' .. quote(name) .. ',"revisionId":' .. quote(id) ..
  (restored ~= '' and ',"restored":' .. quote(restored) or '') .. ',"bytes":' .. F(#text) ..
  ',"before":' .. digest_json(before) .. ',"after":' .. digest_json(digest) .. '}')
call('HSET', K('policy-revision:', id), 'agent', name, 'action', action, 'of', restored, 'by', actor, 'at', RAW,
  'number', meta.seq, 'body', text, 'digest', digest, 'over', over)
call('ZADD', K('policy-revisions:', name), meta.seq, id)
call('HSET', K('policy:', name), 'current', action ~= 'delete' and id or '')
if action == 'delete' then
  call('ZADD', K('deleted-policies'), NOW, name)
else
  call('ZREM', K('deleted-policies'), name) -- @keeps-used-names
end
for _, old in ipairs(call('ZRANGE', K('policy-revisions:', name), 0, -MOST_REVISIONS - 1)) do -- @bounds-revisions
  call('ZREM', K('policy-revisions:', name), old)
  call('DEL', K('policy-revision:', old))
end
remember(key, body, id, DAY)
return (policy_row(id))
