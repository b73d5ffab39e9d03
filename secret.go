package picket

import "log/slog"

// Secret is a string that must not be logged: it prints as [redacted] through
// fmt and slog. JSON carries it in full, for it has to reach its owner.
type Secret string

const redacted = "[redacted]"

func (Secret) String() string       { return redacted }
func (Secret) GoString() string     { return redacted }
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }
