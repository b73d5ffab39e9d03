-- How many bytes of messages a key and a tree of tasks keep.
-- MESSAGE_OVERHEAD is what a message counts in quotas beside its text, in bytes.
local MESSAGE_OVERHEAD = 512

local function message_bytes_of(owner) return num(call('GET', K('message-bytes:', owner))) end

-- add_message_bytes counts bytes of messages for a key and for a tree. Either may be ''.
local function add_message_bytes(key, root, n)
  for _, owner in ipairs({ key, root }) do
    local sum = owner ~= '' and message_bytes_of(owner) + n or 0
    if sum > 0 then -- @keeps-message-bytes
      call('SET', K('message-bytes:', owner), F(sum))
    elseif owner ~= '' then
      call('DEL', K('message-bytes:', owner))
    end
  end
end
