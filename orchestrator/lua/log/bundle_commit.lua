-- flags: allow-oom
-- needs: bundle quota
-- bundle_commit makes a bundle whose pieces are all stored the one that the task keeps. It
-- takes the place of an earlier one.
-- ARGV: task, run, secret, presented token, SHA-256, size and number of pieces of the bundle,
--   branch, base, tip
-- Reply: OK. The same again changes nothing.
-- Errors: lease_expired, task_mismatch, stale_fence, unknown_fence, lease_released, reclaim_required,
--   task_cancelled, task_closed (it was decided), state_conflict (pieces are missing, or
--   the size is another)
local tid, rid, sha, size = ARGV[1], ARGV[2], ARGV[5], ARGV[6]
local r, t, err = authenticate_bundle(tid, rid, ARGV[3], ARGV[4])
if err then return err end
local key, root = K('bundle:', tid), root_of(tid, t)
local b = pick(key, 'sha', 'size', 'run', 'tip', 'up_sha', 'up_size', 'up_key', 'up_run')
if b.sha == sha and b.run == rid and b.tip == ARGV[10] then return 'OK' end -- @same-bundle
if b.sha == sha then
  if b.size ~= size then return refuse('state_conflict.bundle_upload', 'cause', 'bundle_upload') end -- @same-size
else
  if b.up_sha ~= sha or b.up_size ~= size or b.up_run ~= rid -- @same-upload
      or call('HLEN', bundle_pieces(tid, sha)) ~= num(ARGV[7]) then -- @all-pieces
    return refuse('state_conflict.bundle_upload', 'cause', 'bundle_upload')
  end
  delete_kept_bundle(tid, root) -- @replaces-bundle
  call('HSET', key, 'key', b.up_key)
  call('HDEL', key, 'up_sha', 'up_size', 'up_key', 'up_run') -- @ends-upload
  call('ZREM', K('uploads'), tid)
  b.size = size
end
call('HSET', key, 'sha', sha, 'size', b.size, 'count', ARGV[7], 'run', rid, 'token', r.token, 'branch', ARGV[8],
  'base', ARGV[9], 'tip', ARGV[10], 'at', RAW)
return 'OK'
