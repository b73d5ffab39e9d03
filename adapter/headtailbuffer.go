package adapter

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/picket-dev/picket/internal/text"
)

// headTailBuffer keeps the beginning and the end of a stream, and counts what is
// between them. Beginning and end matter most: what was run, and how it ended.
// The zero value is ready.
type headTailBuffer struct {
	mu    sync.Mutex
	head  []byte
	tail  []byte // the last bytes, at least headTailSize of them
	total int64
}

// headTailSize is how much is kept of either end, in bytes.
const headTailSize = 32 << 10

func (m *headTailBuffer) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(p)
	m.total += int64(n)
	if room := headTailSize - len(m.head); room > 0 {
		room = min(room, len(p))
		m.head = append(m.head, p[:room]...)
		p = p[room:]
	}
	m.tail = append(m.tail, p[max(len(p)-headTailSize, 0):]...)
	if over := len(m.tail) - headTailSize; over > headTailSize { // seldom, so that little is moved
		m.tail = slices.Delete(m.tail, 0, over)
	}
	return n, nil
}

// text is what was kept, at most limit bytes of UTF-8, with a line in place of
// what was left out; the secret does not occur in it.
func (m *headTailBuffer) text(secret string, limit int) (whole string, cut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clean := func(b []byte) string {
		s := strings.ToValidUTF8(string(b), "\uFFFD")
		if secret != "" {
			s = strings.ReplaceAll(s, secret, "[redacted]")
		}
		return s
	}
	end := m.tail[max(len(m.tail)-headTailSize, 0):]
	left := m.total - int64(len(m.head)+len(end))
	if left == 0 {
		whole = clean(slices.Concat(m.head, end))
		if len(whole) <= limit {
			return whole, false
		}
	}
	// What no text is grows when it is replaced, and the note takes room.
	head, tail := clean(m.head), clean(end)
	note := fmt.Sprintf("\n[… about %d bytes left out …]\n", max(left, 1))
	room := limit - len(note)
	head = text.Head(head, room/2)
	return head + note + text.Tail(tail, room-len(head)), true
}
