package adaptertest

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/picket-dev/picket"
)

// Fault is a way for a request to fail.
type Fault int

const (
	Unavailable Fault = iota + 1 // answered 503, without effect
	DropRequest                  // the connection breaks, without effect
	DropReply                    // takes effect, then the connection breaks
	// no answer until the client gives up, without effect; lasting, also to what is under way
	Hang
	ForgetLogs // logs only: the server has lost what it had of the stream
	HangReply  // takes effect, then no answer until the client gives up
)

type activeFault struct {
	path  string
	kind  Fault
	times int           // left; negative: until restored
	over  chan struct{} // closed when restored
}

// Fail makes the next requests whose path starts with path fail, times of
// them, or all for a negative number until restore is called. The path "item RUN" is the
// lease of a run within POST /v1/leases/renew, which knows Unavailable only.
func (s *Server) Fail(path string, kind Fault, times int) (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fail(path, kind, times)
}

// fail is Fail for a caller that holds the lock.
func (s *Server) fail(path string, kind Fault, times int) (restore func()) {
	f := &activeFault{path: path, kind: kind, times: times, over: make(chan struct{})}
	s.faults = append(s.faults, f)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f.clear()
	}
}

// clear breaks the connections of those who wait.
func (f *activeFault) clear() {
	f.times = 0
	select {
	case <-f.over:
	default:
		close(f.over)
	}
}

// ClearFaults ends all that [Server.Fail] began.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults {
		f.clear()
	}
	s.faults = nil
}

// nextFault takes the fault that the next request of a path meets; its zero value
// for none.
func (s *Server) nextFault(path string) activeFault {
	for _, f := range s.faults {
		if f.times != 0 && strings.HasPrefix(path, f.path) {
			if f.times > 0 {
				f.times--
			}
			return *f
		}
	}
	return activeFault{}
}

// AdvanceClock lets time pass for the server alone, as it does for the machine of an
// adapter that was suspended.
func (s *Server) AdvanceClock(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clockOffset += d
	s.notify()
}

// now is the server's clock.
func (s *Server) now() time.Time { return time.Now().Add(s.clockOffset) }

// hangFault answers the lasting silence that has begun while a request of a path
// was under way: its answer does not arrive any more.
func (s *Server) hangFault(path string) (activeFault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults {
		if f.times < 0 && (f.kind == Hang || f.kind == HangReply) && strings.HasPrefix(path, f.path) {
			return *f, true
		}
	}
	return activeFault{}, false
}

// ServeHTTP serves both servers under one root.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	n := len(s.calls)
	s.calls = append(s.calls, s.describe(r))
	met := s.nextFault(r.URL.Path)
	s.notify()
	s.mu.Unlock()
	switch met.kind {
	case DropRequest:
		panic(http.ErrAbortHandler)
	case Hang:
		io.Copy(io.Discard, r.Body) // so that the client's going is noticed
		met.hang(r)
	case Unavailable:
		s.answered(n, picket.CodeUnavailable.Status())
		writeError(w, picket.Refuse(picket.CodeUnavailable, "Try again.", "the orchestrator is unavailable"))
		return
	}
	status, body, err := s.route(r, met.kind)
	if cut, ok := s.hangFault(r.URL.Path); ok {
		cut.hang(r)
	}
	switch met.kind {
	case HangReply:
		met.hang(r)
	case DropReply:
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		s.answered(n, picket.CodeOf(err).Status())
		writeError(w, err)
		return
	}
	s.answered(n, status)
	writeJSON(w, status, body)
}

// hang keeps a request until its client has given up or the fault is over.
func (f activeFault) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-f.over:
	}
	panic(http.ErrAbortHandler)
}

func (s *Server) describe(r *http.Request) Call {
	c := Call{Method: r.Method, Path: r.URL.Path, At: now()}
	if l := s.leaseOf(bearer(r)); l != nil {
		c.RunID = l.record.RunID
	}
	return c
}

func (s *Server) answered(n, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[n].Status = status
}

// HTTPClient reaches the server without a socket. It speaks to no other.
func (s *Server) HTTPClient() *http.Client { return &http.Client{Transport: inMemory{s}} }

type inMemory struct{ s *Server }

// RoundTrip calls the handler in a goroutine of its own, as a server would, and
// leaves when the request's context ends.
func (t inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	type outcome struct {
		res *http.Response
		err error
	}
	got := make(chan outcome, 1)
	in := r.Clone(r.Context())
	if in.Body == nil {
		in.Body = http.NoBody
	}
	go func() {
		defer func() {
			if recover() != nil {
				got <- outcome{err: errors.New("connection broken")}
			}
		}()
		rec := httptest.NewRecorder()
		t.s.ServeHTTP(rec, in)
		res := rec.Result()
		res.Request = r
		got <- outcome{res: res}
	}()
	select {
	case o := <-got:
		return o.res, o.err
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}
