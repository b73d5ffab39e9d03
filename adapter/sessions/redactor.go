package sessions

import (
	"bytes"
	"io"
	"strings"
	"sync"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

// anyCapability is a session capability, or as much of one as says more than for which prompt or session it is.
var anyCapability = lazyregexp.New(`pks_[a-z0-9-]{1,32}\.(asession_)?[0-9A-Z]{26}\.[A-Za-z0-9_-]+`)

// redact replaces session capabilities in a text.
func redact(text string) string { return anyCapability().ReplaceAllString(text, "[redacted]") }

// maxHeld is longer than any capability.
const maxHeld = 256

// redactor passes a stream on without session capabilities. It keeps back the end of what was written as long
// as a capability may go on there. The zero value, with a to, is ready.
type redactor struct {
	to io.Writer

	mu   sync.Mutex
	held []byte
}

func (r *redactor) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := append(r.held, p...)
	whole := len(text) - openCapability(text)
	r.held = bytes.Clone(text[whole:])
	if whole == 0 {
		return len(p), nil
	}
	_, err := io.WriteString(r.to, redact(string(text[:whole])))
	return len(p), err
}

// Flush passes on what was kept back.
func (r *redactor) Flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.held) > 0 {
		_, _ = io.WriteString(r.to, redact(string(r.held)))
		r.held = nil
	}
}

// openCapability is how many bytes at the end of a text a capability may begin with that goes on behind it.
func openCapability(text []byte) int {
	word := text[max(0, len(text)-maxHeld):]
	if i := bytes.LastIndexFunc(word, func(c rune) bool { return !isOfCapability(c) }); i >= 0 {
		word = word[i+1:]
	}
	if i := bytes.Index(word, []byte(picket.SessionCapabilityPrefix)); i >= 0 {
		return len(word) - i
	}
	for n := len(picket.SessionCapabilityPrefix) - 1; n > 0; n-- {
		if strings.HasSuffix(string(word), picket.SessionCapabilityPrefix[:n]) {
			return n
		}
	}
	return 0
}

// isOfCapability reports whether a capability may have this character.
func isOfCapability(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_.-", c)
}
