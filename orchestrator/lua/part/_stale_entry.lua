-- remove_stale_entry takes a task out of a set where only a damaged store has it, so that it
-- does not hold up the others, and reports it in the log.
local function remove_stale_entry(kind, key, id)
  call('ZREM', key, id)
  emit('invariant.repaired', { task = id, actor = 'server' },
    '{"kind":"' .. kind .. '","subject":' .. quote(id) .. ',"reason":"it does not belong there"}')
end
