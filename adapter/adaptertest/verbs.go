package adaptertest

import (
	"context"
	"io"
	"net/http"
	"slices"
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

// verb is a fenced or an evidence call of one lease; the server is locked.
type verb func(s *Server, l *lease, r *http.Request, body []byte) (any, error)

var fencedVerbs = map[string]verb{
	"/v1/lease/renew":              renew,
	"/v1/tools/report_progress":    report,
	"/v1/tools/get_task":           getTask,
	"/v1/lease/release":            release,
	"/v1/tools/mark_complete":      complete,
	"/v1/tools/mark_failed":        fail,
	"/v1/tools/request_human_help": help,
}

var evidenceVerbs = map[string]verb{"/v1/run/exit": exit, "/v1/run/logs": logs, "/v1/run/events": events}

func (s *Server) route(r *http.Request, kind Trouble) (int, any, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return 0, nil, picket.Invalid("", "Send it again.", "the body cannot be read")
	}
	if r.URL.Path == "/api/v1/leases" && r.Method == http.MethodPost {
		return s.acquire(r, body)
	}
	s.mu.Lock()
	l := s.leases[bearer(r)]
	s.mu.Unlock()
	if l == nil {
		return 0, nil, picket.Refuse(picket.CodeUnauthenticated, "Send the lease token.", "there is no such lease token")
	}
	if r.URL.Path == "/v1/lease/watch" && r.Method == http.MethodGet {
		return s.watch(r, l)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind == Forget {
		clear(l.logs)
	}
	do, fenced := fencedVerbs[r.URL.Path]
	if !fenced {
		do = evidenceVerbs[r.URL.Path]
	}
	if do == nil || r.Method != http.MethodPost {
		return 0, nil, picket.Refuse(picket.CodeNotFound, "See the protocol.", "there is no %s %s", r.Method, r.URL.Path)
	}
	if fenced && !(l.verb != "" && l.verb == r.URL.Path+string(body)) { // the same again gets the same answer
		if err := s.fence(l); err != nil {
			return 0, nil, err
		}
		l.confirmed = true
	}
	out, err := do(s, l, r, body)
	return http.StatusOK, out, err
}

// fence is the one test of "still holds".
func (s *Server) fence(l *lease) error {
	if l.state == picket.WatchHeld && !time.Now().Before(l.deadline) {
		s.end(l, picket.WatchLost, picket.CodeLeaseExpired, l.task.retried())
	}
	switch {
	case l.state == picket.WatchHeld:
		return nil
	case l.refusal != picket.CodeTaskCancelled && l.record.FencingToken < l.task.view.Token:
		return picket.Refuse(picket.CodeStaleFence, "Stop writing and exit.", "token %d was superseded", l.record.FencingToken).
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
	if err := req.Normalize(); err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(*req.WaitSeconds)*time.Second)
	defer cancel()
	once := r.Header.Get("Idempotency-Key")
	for {
		s.mu.Lock()
		leases, changed := s.grantUpTo(*req.Max, once, req.WorkspaceRoot), s.changed
		s.mu.Unlock()
		if len(leases) > 0 {
			return http.StatusOK, picket.Acquired{Leases: leases}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return http.StatusOK, picket.Acquired{}, nil
		}
	}
}

func (s *Server) grantUpTo(n int, once, root string) (out []picket.Lease) {
	granted := s.replays[once]
	for len(granted) == 0 && len(out) < n && len(s.queue) > 0 && !s.paused {
		t := s.queue[0]
		s.queue = s.queue[1:]
		l := s.grant(t)
		if root != "" {
			l.record.WorkspacePath = root + "/" + l.record.RunID
		}
		out = append(out, l.record)
		if once != "" {
			s.replays[once] = append(s.replays[once], l)
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
		w, changed, left := picket.Watch{State: l.state, Commands: l.commands}, s.changed, time.Until(l.deadline)
		l.commands = nil
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

func renew(s *Server, l *lease, _ *http.Request, body []byte) (any, error) {
	if _, err := decode[struct{}](body); err != nil {
		return nil, err
	}
	l.run.Renewals++
	l.deadline = time.Now().Add(l.window)
	s.wake()
	return picket.Renewal{LeaseExpiresAt: picket.InstantOf(l.deadline), LeaseTTLMs: l.window.Milliseconds(), FencingToken: l.record.FencingToken}, nil
}

type stateAnswer struct {
	State picket.TaskState `json:"state"`
}

// finish ends the lease by a verb, once; repeated it answers the same.
func (s *Server) finish(l *lease, r *http.Request, body []byte, state picket.WatchState, to picket.TaskState) stateAnswer {
	if l.verb == "" {
		l.verb = r.URL.Path + string(body)
		s.end(l, state, picket.CodeLeaseReleased, to)
	}
	return stateAnswer{l.answer}
}

func release(s *Server, l *lease, r *http.Request, body []byte) (any, error) {
	in, err := decode[struct {
		Exit   picket.Exit `json:"exit"`
		Detail string      `json:"detail"`
	}](body)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(picket.ReleaseClasses, in.Exit.Class) {
		return nil, picket.Invalid("/exit/class", "Send a class of a release.", "%q is not a class of a release", in.Exit.Class)
	}
	to := l.task.retried()
	if in.Exit.Class == picket.ExitReleased {
		to = picket.TaskQueued
	}
	if l.run.Released == nil {
		in.Exit.Detail = in.Detail
		l.run.Released = &in.Exit
	}
	return s.finish(l, r, body, picket.WatchLost, to), nil
}

func complete(s *Server, l *lease, r *http.Request, body []byte) (any, error) {
	in, err := decode[struct {
		Output  picket.RawJSON `json:"output"`
		Summary string         `json:"summary"`
	}](body)
	if err != nil {
		return nil, err
	}
	if len(in.Output) > picket.MaxPayload {
		return nil, picket.TooLarge("/output", len(in.Output))
	}
	l.task.view.Output, l.task.view.Summary = in.Output, in.Summary
	return s.finish(l, r, body, picket.WatchCompleted, picket.TaskReview), nil
}

func fail(s *Server, l *lease, r *http.Request, body []byte) (any, error) {
	in, err := decode[struct {
		Reason    string `json:"reason"`
		Retryable bool   `json:"retryable"`
	}](body)
	to := picket.TaskHandoff
	if in.Retryable {
		to = l.task.retried()
	}
	if err != nil {
		return nil, err
	}
	return s.finish(l, r, body, picket.WatchLost, to), nil
}

func help(s *Server, l *lease, r *http.Request, body []byte) (any, error) {
	in, err := decode[picket.HelpRequest](body)
	if err == nil {
		err = in.Normalize()
	}
	if err != nil {
		return nil, err
	}
	l.task.view.Question = in.Question
	done := s.finish(l, r, body, picket.WatchHandoff, picket.TaskHandoff)
	return picket.HelpRequested{HandoffID: "handoff" + l.record.RunID[len("run"):], State: done.State}, nil
}

func report(s *Server, l *lease, _ *http.Request, body []byte) (any, error) {
	p, err := decode[picket.Progress](body)
	if err != nil {
		return nil, err
	}
	l.task.view.Reports = append(l.task.view.Reports, p)
	s.wake()
	return picket.Reported{Seq: int64(len(l.task.view.Reports)), Pinned: true}, nil
}

func getTask(_ *Server, l *lease, _ *http.Request, _ []byte) (any, error) {
	return picket.Task{TaskID: l.task.id, State: l.task.view.State, Title: l.task.script.Title, Input: l.task.script.Input, FencingToken: l.task.view.Token}, nil
}

func exit(s *Server, l *lease, _ *http.Request, body []byte) (any, error) {
	in, err := decode[struct {
		picket.Exit
		Containment string `json:"containment"`
	}](body)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(picket.EvidenceClasses, in.Class) {
		return nil, picket.Invalid("/class", "Send a class of evidence.", "%q is not a class of evidence", in.Class)
	}
	l.run.Evidence, l.run.Containment = &in.Exit, in.Containment
	s.wake()
	return struct{}{}, nil
}

func logs(s *Server, l *lease, r *http.Request, body []byte) (any, error) {
	q := r.URL.Query()
	stream := q.Get("stream")
	offset, err := strconv.Atoi(q.Get("offset"))
	if err != nil || (stream != "stdout" && stream != "stderr") {
		return nil, picket.Invalid("?stream", "Send a stream and an offset.", "stream or offset is wrong")
	}
	if len(body) > 64<<10 {
		return nil, picket.Refuse(picket.CodeTooLarge, "Send smaller chunks.", "the chunk has %d bytes", len(body))
	}
	have := len(l.logs[stream])
	if offset > have {
		return nil, picket.Refuse(picket.CodeOffset, "Go on from expected.", "offset %d is beyond %d", offset, have).With("expected", have)
	}
	if fresh := have - offset; fresh < len(body) {
		l.logs[stream] = append(l.logs[stream], body[fresh:]...)
	}
	s.wake()
	return struct {
		Next int `json:"next"`
	}{len(l.logs[stream])}, nil
}

func events(s *Server, l *lease, _ *http.Request, body []byte) (any, error) {
	in, err := decode[struct {
		Events []picket.RunEvent `json:"events"`
	}](body)
	if err != nil {
		return nil, err
	}
	l.run.Events = append(l.run.Events, in.Events...)
	s.wake()
	return struct{}{}, nil
}

func decode[T any](body []byte) (T, error) {
	var v T
	if err := json.Unmarshal(body, &v, json.RejectUnknownMembers(true)); err != nil {
		return v, picket.Invalid("", "See the protocol.", "the body cannot be read: %v", err)
	}
	return v, nil
}

func answer(w http.ResponseWriter, status int, body any) {
	if status == http.StatusNoContent {
		w.WriteHeader(status)
		return
	}
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(b)
}

func refuse(w http.ResponseWriter, err error) {
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
	b, merr := json.Marshal(body)
	if merr != nil {
		panic(merr)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(e.Code.Status())
	w.Write(b)
}
