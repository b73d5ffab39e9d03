-- needs: evidence fence
-- A bundle is the committed branch of a task, as git packs it. The server keeps
-- the last one of each task, in pieces, and the pieces of one upload.

-- bundle_pieces is the key of the pieces of a bundle, which its SHA-256 names.
local function bundle_pieces(tid, sha) return K('pieces:', tid .. ':' .. sha) end

-- authenticate_bundle checks that the caller's run may store the bundle of its task. A run whose
-- lease has ended may do so as long as evidence is accepted and no later lease was granted.
-- It returns run and task, or the refusal.
local function authenticate_bundle(tid, rid, secret, presented)
  local r, err = authenticate_run(tid, rid, secret, presented)
  if err then return nil, nil, err end
  local t = pick(K('task:', tid), 'token', 'run', 'state', 'root')
  if r.token ~= t.token then -- @newest-bundle
    return nil, nil, refuse('stale_fence', 'presented', r.token, 'current', t.token or '0', 'owner',
      t.state == 'leased' and t.run or '-')
  end
  if r.state == 'running' then
    local _, _, _, lost = fenced(tid, rid, secret, presented) -- @holder-of-bundle
    if lost then return nil, nil, lost end
  elseif key_ended_leases(r.key) then -- @key-of-bundle
    return nil, nil, refuse('lease_expired', 'cause', 'key_revoked')
  end
  local decided = decided_state(tid)
  if decided then return nil, nil, refuse('task_closed', 'kind', 'evidence', 'state', decided) end -- @no-late-bundle
  return r, t
end

local function bundle_bytes_of(owner) return num(call('GET', K('bundle-bytes:', owner))) end

-- add_bundle_bytes counts bytes of bundles for a key, which may be '', and for a tree.
local function add_bundle_bytes(key, root, n)
  for _, owner in ipairs({ key, root }) do
    local sum = owner ~= '' and bundle_bytes_of(owner) + n or 0
    if sum > 0 then -- @keeps-bundle-bytes
      call('SET', K('bundle-bytes:', owner), F(sum))
    elseif owner ~= '' then
      call('DEL', K('bundle-bytes:', owner))
    end
  end
end

-- delete_upload deletes an upload that was not finished.
local function delete_upload(tid, root)
  local key = K('bundle:', tid)
  local b = call('HMGET', key, 'up_sha', 'up_size', 'up_key')
  call('ZREM', K('uploads'), tid)
  if not b[1] then return end
  call('DEL', bundle_pieces(tid, b[1]))
  call('HDEL', key, 'up_sha', 'up_size', 'up_key', 'up_run')
  add_bundle_bytes(b[3], root, -num(b[2])) -- @uncounts-upload
end

-- delete_kept_bundle deletes the pieces of the bundle that a task keeps.
local function delete_kept_bundle(tid, root)
  local b = call('HMGET', K('bundle:', tid), 'sha', 'size', 'key')
  if not b[1] then return end
  call('DEL', bundle_pieces(tid, b[1]))
  add_bundle_bytes(b[3], root, -num(b[2])) -- @uncounts-bundle
end

-- delete_bundle deletes all bundles of a task.
local function delete_bundle(tid, root)
  delete_upload(tid, root)
  delete_kept_bundle(tid, root)
  call('DEL', K('bundle:', tid))
end
