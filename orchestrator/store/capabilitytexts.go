package store

// capabilityTexts say why a session capability is not valid, by cause.
var capabilityTexts = map[string]refusalText{
	"": {"the session capability was not made for a prompt of this server, or its prompt is not known any more",
		"Send the capability exactly as it came with the prompt."},
	"prompt_ended": {"the prompt of this session capability has ended", remedyOfCapability},
	"time":         {"the deadline of the prompt of this session capability has passed", remedyOfCapability},
	"agent":        {"the agent of this session capability is gone", remedyOfCapability},
	"superseded":   {"the agent of this session capability was registered again", remedyOfCapability},
	"key_revoked":  {"the key that registered the agent of this session capability was revoked", remedyOfCapability},
}

const remedyOfCapability = "Stop. The next prompt has a capability of its own."
