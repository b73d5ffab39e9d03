-- key_view shows an API key by its id.
local function key_view(id) return named{ id = id, record = call('HGETALL', K('key:', id)) } end
