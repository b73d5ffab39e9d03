package adaptertest

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

func now() time.Time { return time.Now() }

func bearer(r *http.Request) picket.Secret {
	return picket.Secret(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
}

// sameRequest reports whether a request that has the key of one before is the same.
func (s *Server) sameRequest(r *http.Request, body []byte) bool {
	once, request := r.Header.Get("Idempotency-Key"), r.Method+" "+r.URL.Path+" "+string(body)
	if once == "" {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.requests[once]; !known {
		s.requests[once] = request
	}
	return s.requests[once] == request
}

func (s *Server) route(r *http.Request, kind Fault) (int, any, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return 0, nil, picket.Invalid("", "Send it again.", "the body cannot be read")
	}
	if !s.sameRequest(r, body) {
		return 0, nil, picket.Refuse(picket.CodeIdempotencyConflict,
			"Send a new key for a new request, or the same body to repeat the old one.",
			"this idempotency key was used with another body")
	}
	if r.URL.Path == "/api/v1/leases" && r.Method == http.MethodPost {
		return s.acquire(r, body)
	}
	if r.URL.Path == "/api/v1/leases/advance" && r.Method == http.MethodPost {
		return s.advance(r, body)
	}
	if r.URL.Path == "/v1/leases/renew" && r.Method == http.MethodPost {
		return s.renewTogether(r, body)
	}
	if strings.HasPrefix(r.URL.Path, "/api/v1/tasks/") && strings.Contains(r.URL.Path, "/bundle") &&
		r.Method == http.MethodGet {
		return s.readBundle(r)
	}
	if path := r.URL.Path; path == "/api/v1/agents" || strings.HasPrefix(path, "/api/v1/agents/") {
		return s.registryRoute(r, body)
	}
	s.mu.Lock()
	l := s.leaseOf(bearer(r))
	s.mu.Unlock()
	if l == nil {
		return 0, nil, picket.Refuse(picket.CodeUnauthenticated, "Send the lease token.",
			"there is no such lease token")
	}
	if err := l.checkCredential(bearer(r), r.URL.Path); err != nil {
		return 0, nil, err
	}
	if r.URL.Path == "/v1/lease/watch" && r.Method == http.MethodGet {
		return s.watch(r, l)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind == ForgetLogs {
		clear(l.logs)
	}
	do, fenced := fencedHandlers[r.URL.Path]
	method := http.MethodPost
	if r.URL.Path == "/v1/run/messages" {
		do, fenced, method = waitingMessages, true, http.MethodGet
	}
	if !fenced {
		do = evidenceHandlers[r.URL.Path]
	}
	if strings.HasPrefix(r.URL.Path, execPath) {
		do = execResult
	}
	if strings.HasPrefix(r.URL.Path, bundlePath) {
		do = bundlePiece
	}
	if do == nil || r.Method != method {
		return 0, nil, picket.Refuse(picket.CodeNotFound, "See the protocol.", "there is no %s %s", r.Method,
			r.URL.Path)
	}
	if fenced && !(l.verb != "" && l.verb == r.URL.Path+string(body)) { // the same again gets the same answer
		if err := s.fence(l); err != nil {
			return 0, nil, err
		}
		if l.void && r.URL.Path != "/v1/lease/reclaim" {
			return 0, nil, picket.Refuse(picket.CodeReclaimRequired, "Reclaim the lease, then repeat the request.",
				"the store was adopted")
		}
		l.confirmed = true
		if strings.HasPrefix(r.URL.Path, "/v1/tools/") {
			l.called = s.now()
		}
	}
	out, err := do(s, l, r, body)
	return http.StatusOK, out, err
}

// checkCredential refuses the credential of the other side of a lease with two.
func (l *lease) checkCredential(bearer picket.Secret, path string) error {
	agents := strings.HasPrefix(path, "/v1/tools")
	if l.record.AgentToken == "" || agents == (bearer == l.record.AgentToken) {
		return nil
	}
	return picket.Refuse(picket.CodeForbidden,
		"Send the agentToken to the routes of tools, and the leaseToken to the others.",
		"this is the other credential of the lease")
}

// fence is the one test of "still holds".
func (s *Server) fence(l *lease) error {
	if a := s.agents[l.agent]; a != nil {
		s.evaluateSilence(a)
	}
	if l.state == picket.WatchHeld && !s.now().Before(l.deadline) {
		s.end(l, picket.WatchLost, picket.CodeLeaseExpired, l.task.stateAfterFailure())
	}
	switch {
	case l.state == picket.WatchHeld:
		return nil
	case l.refusal != picket.CodeTaskCancelled && l.record.FencingToken < l.task.view.Token:
		return picket.Refuse(picket.CodeStaleFence, "Stop writing and exit.", "token %d was superseded",
			l.record.FencingToken).
			With("presented", l.record.FencingToken).With("current", l.task.view.Token)
	}
	return picket.Refuse(l.refusal, "Stop writing and exit.", "the lease has ended")
}

func (s *Server) acquire(r *http.Request, body []byte) (int, any, error) {
	req, err := decode[picket.AcquireRequest](body)
	if err != nil {
		return 0, nil, err
	}
	if bearer(r) != Key {
		return 0, nil, picket.Refuse(picket.CodeUnauthenticated, "Send an API key.", "the key is not known")
	}
	if err := cmp.Or(req.Normalize(), s.checkKnownMembers(req)); err != nil {
		return 0, nil, err
	}
	leases, err := s.granted(r, req)
	return http.StatusOK, picket.Acquired{Leases: leases}, err
}

// granted grants what there is, or waits for it.
func (s *Server) granted(r *http.Request, req picket.AcquireRequest) ([]picket.Lease, error) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(*req.WaitSeconds)*time.Second)
	defer cancel()
	once := r.Header.Get("Idempotency-Key")
	s.recordAcquire(req)
	for {
		s.mu.Lock()
		if err := s.checkAgent(req); err != nil && len(s.acquireReplays[once]) == 0 {
			s.mu.Unlock()
			return nil, err
		}
		leases, changed := s.grantUpTo(req, once), s.changed
		s.mu.Unlock()
		if len(leases) > 0 {
			return leases, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil
		}
	}
}

func (s *Server) grantUpTo(req picket.AcquireRequest, once string) (out []picket.Lease) {
	granted := s.acquireReplays[once]
	for len(granted) == 0 && len(out) < *req.Max && len(s.queue) > 0 && !s.paused {
		t := s.queue[0]
		s.queue = s.queue[1:]
		l := s.grant(t)
		if req.SeparateCredentials {
			s.addAgentToken(l)
		}
		if req.WorkspaceRoot != "" {
			l.record.WorkspacePath = req.WorkspaceRoot + "/" + l.record.RunID
		}
		if a := s.agents[req.AgentID]; a != nil {
			l.agent, l.incarnation = a.record.AgentID, a.record.Incarnation
		}
		out = append(out, l.record)
		if once != "" {
			s.acquireReplays[once] = append(s.acquireReplays[once], l)
		}
	}
	for _, l := range granted {
		out = append(out, l.record)
	}
	return out
}

func (s *Server) watch(r *http.Request, l *lease) (int, any, error) {
	seconds, err := strconv.Atoi(r.URL.Query().Get("waitSeconds"))
	if err != nil || seconds < 0 || seconds > 50 {
		return 0, nil, picket.Invalid("?waitSeconds", "Send a number from 0 to 50.", "waitSeconds is not in range")
	}
	end := time.After(time.Duration(seconds) * time.Second)
	for {
		s.mu.Lock()
		s.fence(l)
		w, changed, left := picket.Watch{State: l.state, Commands: l.commands}, s.changed, l.deadline.Sub(s.now())
		l.commands = nil
		w.Commands = append(w.Commands, s.execCommands(l, r.URL.Query().Get("exec"))...)
		if l.void && w.State == picket.WatchHeld {
			w.State = picket.WatchReclaim
		}
		s.mu.Unlock()
		if w.State != picket.WatchHeld || len(w.Commands) > 0 {
			return http.StatusOK, w, nil
		}
		select {
		case <-changed:
		case <-time.After(left):
		case <-end:
			return http.StatusNoContent, nil, nil
		case <-r.Context().Done():
			return http.StatusNoContent, nil, nil
		}
	}
}

func decode[T any](body []byte) (T, error) {
	var v T
	if err := json.Unmarshal(body, &v, json.RejectUnknownMembers(true)); err != nil {
		return v, picket.Invalid("", "See the protocol.", "the body cannot be read: %v", err)
	}
	return v, nil
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	if status == http.StatusNoContent {
		w.WriteHeader(status)
		return
	}
	if data, ok := body.([]byte); ok {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.WriteHeader(status)
		w.Write(data)
		return
	}
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	if a, ok := body.(picket.Agent); ok {
		w.Header().Set("ETag", `"`+strconv.FormatInt(a.Version, 10)+`"`)
	}
	w.WriteHeader(status)
	w.Write(b)
}

func writeError(w http.ResponseWriter, err error) {
	b, merr := json.Marshal(problem(err))
	if merr != nil {
		panic(merr)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(picket.CodeOf(err).Status())
	w.Write(b)
}

// problem is the error object of an error.
func problem(err error) map[string]any {
	e := &picket.Error{}
	if got, ok := err.(*picket.Error); ok {
		e = got
	}
	body := map[string]any{
		"type": "about:blank", "title": e.Code.Title(), "status": e.Code.Status(), "detail": e.Message,
		"code": e.Code, "message": e.Message, "remedy": e.Remedy, "retryable": e.Code.Retryable(), "requestId": "test",
	}
	for k, v := range e.Facts {
		body[k] = v
	}
	return body
}

func newID(kind string) string {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	var id [26]byte
	rand.Read(id[:])
	for i := range id {
		id[i] = digits[id[i]&31]
	}
	id[0] = '0'
	return kind + "_" + string(id[:])
}
