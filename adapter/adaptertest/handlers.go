package adaptertest

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/picket-dev/picket"
)

// handler is a fenced or an evidence call of one lease; the server is locked.
type handler func(s *Server, l *lease, r *http.Request, body []byte) (any, error)

var fencedHandlers = map[string]handler{
	"/v1/lease/renew":              renew,
	"/v1/lease/reclaim":            reclaim,
	"/v1/tools/report_progress":    report,
	"/v1/tools/get_task":           getTask,
	"/v1/lease/release":            release,
	"/v1/tools/mark_complete":      complete,
	"/v1/tools/mark_failed":        fail,
	"/v1/tools/request_human_help": help,
}

var evidenceHandlers = map[string]handler{
	"/v1/run/exit":     exit,
	"/v1/run/evidence": evidence,
	"/v1/run/logs":     logs,
	"/v1/run/events":   events,
	"/v1/run/usage":    usage,
	"/v1/run/bundle":   bundle,
}

func renew(s *Server, l *lease, _ *http.Request, body []byte) (any, error) {
	if _, err := decode[struct{}](body); err != nil {
		return nil, err
	}
	l.run.Renewals++
	l.deadline = s.now().Add(l.window)
	s.notify()
	return picket.Renewal{
		LeaseExpiresAt: picket.InstantOf(l.deadline),
		LeaseTTLMs:     l.window.Milliseconds(),
		FencingToken:   l.record.FencingToken,
		IdleMs:         l.idle(s.now()),
		Commands:       s.execCommands(l, ""),
	}, nil
}

func reclaim(s *Server, l *lease, r *http.Request, body []byte) (any, error) {
	if l.void {
		l.void = false
		l.task.view.Token += 1 << 21
		l.record.FencingToken = l.task.view.Token
		l.run.Reclaims++
	}
	return renew(s, l, r, body)
}

// idle is the age of the last tool call in ms, nil without one.
func (l *lease) idle(now time.Time) *int64 {
	if l.called.IsZero() {
		return nil
	}
	ms := now.Sub(l.called).Milliseconds()
	return &ms
}

type stateReply struct {
	State picket.TaskState `json:"state"`
}

// finish ends the lease by a verb, once; repeated it answers the same.
func (s *Server) finish(l *lease, r *http.Request, body []byte, state picket.WatchState,
	to picket.TaskState) stateReply {
	if l.verb == "" {
		l.verb = r.URL.Path + string(body)
		s.end(l, state, picket.CodeLeaseReleased, to)
	}
	return stateReply{l.answer}
}

func release(s *Server, l *lease, r *http.Request, body []byte) (any, error) {
	in, err := decode[struct {
		Exit   picket.Exit `json:"exit"`
		Detail string      `json:"detail"`
		Last   *string     `json:"lastEventId"`
	}](body)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(picket.ReleaseClasses, in.Exit.Class) {
		return nil, picket.Invalid("/exit/class", "Send a class of a release.", "%q is not a class of a release",
			in.Exit.Class)
	}
	to := l.task.stateAfterFailure()
	if in.Exit.Class == picket.ExitReleased {
		to = picket.TaskQueued
	}
	if l.run.Released == nil {
		in.Exit.Detail, in.Exit.LastEvent = in.Detail, in.Last
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
		to = l.task.stateAfterFailure()
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
	l.task.last = &picket.Report{
		Seq:          int64(len(l.task.view.Reports)),
		Progress:     p,
		RunID:        l.record.RunID,
		FencingToken: l.record.FencingToken,
		Pinned:       true,
	}
	s.notify()
	return picket.Reported{Seq: int64(len(l.task.view.Reports)), Pinned: true}, nil
}

func getTask(_ *Server, l *lease, _ *http.Request, _ []byte) (any, error) {
	return picket.Task{
		TaskID:         l.task.id,
		State:          l.task.view.State,
		Title:          l.task.script.Title,
		Input:          l.task.script.Input,
		FencingToken:   l.task.view.Token,
		LastReport:     l.task.last,
		BudgetEnvelope: *l.task.script.Budget,
		Available:      *l.task.script.Budget,
	}, nil
}

func exit(s *Server, l *lease, _ *http.Request, body []byte) (any, error) {
	in, err := decode[struct {
		picket.Exit
		Containment string  `json:"containment"`
		Last        *string `json:"lastEventId"`
	}](body)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(picket.EvidenceClasses, in.Class) {
		return nil, picket.Invalid("/class", "Send a class of evidence.", "%q is not a class of evidence", in.Class)
	}
	in.LastEvent = in.Last
	l.run.ExitReport, l.run.Containment = &in.Exit, in.Containment
	s.notify()
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
		return nil, picket.Refuse(picket.CodeOffset, "Go on from expected.", "offset %d is beyond %d", offset, have).
			With("expected", have)
	}
	if fresh := have - offset; fresh < len(body) {
		l.logs[stream] = append(l.logs[stream], body[fresh:]...)
	}
	s.notify()
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
	for _, e := range in.Events {
		again := func(was picket.RunEvent) bool { return e.ID != "" && was.ID == e.ID }
		if !slices.ContainsFunc(l.run.Events, again) {
			l.run.Events = append(l.run.Events, e)
		}
	}
	s.notify()
	return struct{}{}, nil
}
