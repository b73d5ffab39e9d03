-- MESSAGE_OVERHEAD is what a message counts in quotas beside its text, in bytes.
local MESSAGE_OVERHEAD = 512

local function message_bytes_of(owner) return num(call('GET', K('message-bytes:', owner))) end
