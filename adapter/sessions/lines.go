package sessions

import (
	"bytes"
	"io"

	"github.com/picket-dev/picket/internal/text"
)

// lineWriter hands each line that is written to a function. whole is false for a line that was longer
// than most bytes: the rest of it is dropped. It is never called by two at once.
type lineWriter struct {
	most int
	each func(line []byte, whole bool)

	part []byte // of a line that has not ended
	cut  bool
}

func (w *lineWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		fits := min(len(line), w.most-len(w.part))
		w.part, w.cut = append(w.part, line[:fits]...), w.cut || fits < len(line)
		if ended {
			w.each(w.part, !w.cut)
			w.part, w.cut = w.part[:0], false
			if cap(w.part) > 64<<10 {
				w.part = nil
			}
		}
		rest = after
	}
	return len(p), nil
}

// flush takes what is left as a line.
func (w *lineWriter) flush() {
	if len(w.part) > 0 {
		w.each(w.part, !w.cut)
		w.part, w.cut = nil, false
	}
}

// wrap passes a stream on and remembers its last line that is not empty.
func (l *lastLine) wrap(to io.Writer) io.Writer {
	return io.MultiWriter(to, &lineWriter{most: maxComplaint, each: func(line []byte, _ bool) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			l.mu.Lock()
			l.line = text.ValidHead(string(line), maxComplaint)
			l.mu.Unlock()
		}
	}})
}
