-- needs: bundle quota
-- bundle_piece stores one piece of the bundle of a task's branch. Nobody can read the bundle
-- until bundle_commit has named it whole. The first piece begins the upload, in place of one
-- that was not finished. The same piece again is the same piece.
-- alone
-- ARGV: task, run, secret, presented token, SHA-256 and size of the bundle, number of the piece, bytes,
--   most bytes of a bundle, most bytes of the bundles of a key (with its run keys) and of a tree
-- Reply: OK, or 'kept' if the task keeps this bundle already
-- Errors: lease_expired (also when the run key was deleted), task_mismatch, stale_fence, unknown_fence,
--   lease_released, reclaim_required, task_cancelled, task_closed (it was decided), quota_exceeded,
--   state_conflict (the upload did not begin)
local tid, rid, sha, size, index = ARGV[1], ARGV[2], ARGV[5], num(ARGV[6]), num(ARGV[7])
local r, t, err = authenticate_bundle(tid, rid, ARGV[3], ARGV[4])
if err then return err end
local key, root, by = K('bundle:', tid), root_of(tid, t), key_owner(r.key)
local b = pick(key, 'sha', 'up_sha', 'up_size', 'up_key', 'up_run')
if b.sha == sha then return 'kept' end -- @kept-bundle
if b.up_sha ~= sha or num(b.up_size) ~= size or b.up_run ~= rid then -- @begins-upload
  if index ~= 0 then return refuse('state_conflict.bundle_upload', 'cause', 'bundle_upload') end
  if not by then return refuse('lease_expired', 'cause', 'key_revoked') end -- @counted-bundle
  local before = b.up_sha and num(b.up_size) or 0
  local by_key = bundle_bytes_of(by) - (b.up_key == by and before or 0)
  local no = check_quota('bundle_bytes', num(ARGV[9]), 0, size) -- @bounds-bundle
    or check_quota('bundles_bytes', num(ARGV[10]), bundle_bytes_of(root) - before, size) -- @bounds-tree-bundles
    or by ~= '' and check_quota('bundles_bytes', num(ARGV[10]), by_key, size) -- @bounds-key-bundles
  if no then return no end
  delete_upload(tid, root)
  call('HSET', key, 'up_sha', sha, 'up_size', F(size), 'up_key', by, 'up_run', rid)
  add_bundle_bytes(by, root, size) -- @counts-bundle
  call('ZADD', K('uploads'), NOW, tid) -- @notes-upload
end
call('HSET', bundle_pieces(tid, sha), F(index), ARGV[8])
return 'OK'
