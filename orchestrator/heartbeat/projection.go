package heartbeat

import (
	"strings"

	"github.com/picket-dev/picket/internal/text"
)

// Projection is the beginning of the body that a wake prompt quotes: at most
// context_projection_bytes, and at most max_body_bytes. It ends with a whole line. A first line that
// is longer than that is cut after a whole character. cut is true if something is left out.
func (p *Policy) Projection(s Settings) (body string, cut bool) {
	limit := min(s.ContextProjectionBytes, s.MaxBodyBytes)
	if len(p.Body) <= limit {
		return p.Body, false
	}
	body = text.Head(p.Body, limit)
	if end := strings.LastIndexByte(body, '\n'); end > 0 && p.Body[len(body)] != '\n' {
		body = body[:end]
	}
	return strings.TrimRight(body, " \t\n"), true
}
