package adapter

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/client"
)

// Proxy is the tool proxy as the holder of one lease sees it. Every method is
// refused with a code that is [picket.Code.Fenced] once the lease is gone.
type Proxy struct {
	client *client.Client
	agent  *client.Client // calls tools, with the credential of the agent
	fence  string
}

// NewProxy speaks to the tool proxy of a lease; baseURL is used when the lease
// names none. A nil httpClient means [client.DefaultHTTP].
func NewProxy(lease picket.Lease, baseURL string, httpClient *http.Client) *Proxy {
	if lease.ProxyURL != "" {
		baseURL = lease.ProxyURL
	}
	return &Proxy{
		client: newClient(baseURL, lease.LeaseToken, httpClient),
		agent:  newClient(baseURL, lease.AgentCredential(), httpClient),
		fence:  strconv.FormatInt(lease.FencingToken, 10),
	}
}

// newClient makes a client that sends every request once: the adapter decides itself
// what it repeats, and for how long.
func newClient(baseURL string, key picket.Secret, httpClient *http.Client) *client.Client {
	return client.New(baseURL, key, client.Options{HTTP: httpClient, Attempts: 1})
}

// BaseURL is the proxy spoken to.
func (p *Proxy) BaseURL() string { return p.client.URL() }

func (p *Proxy) post(ctx context.Context, path string, in, out any, opts ...client.Option) error {
	return p.call(ctx, p.client, http.MethodPost, path, in, out, opts...)
}

// call makes a call. If the lease has to be reclaimed first, it reclaims the lease and repeats the
// call once, so the callers do not notice an adoption.
func (p *Proxy) call(ctx context.Context, as *client.Client, method, path string, in, out any,
	opts ...client.Option) error {
	opts = append(opts, client.WithHeader("X-Fencing-Token", p.fence))
	err := as.Call(ctx, method, path, in, out, opts...)
	if !errors.Is(err, picket.CodeReclaimRequired) {
		return err
	}
	if _, err := p.Reclaim(ctx); err != nil {
		return err
	}
	return as.Call(ctx, method, path, in, out, opts...)
}

// Reclaim takes a lease from before an adoption of the store over into it: the
// fencing token rises, the lease token stays. Any other lease is left as it is.
func (p *Proxy) Reclaim(ctx context.Context) (r picket.Renewal, err error) {
	err = p.client.Call(ctx, http.MethodPost, "/v1/lease/reclaim", struct{}{}, &r,
		client.WithHeader("X-Fencing-Token", p.fence))
	return r, err
}

// Renew extends the lease by its window, counted by the store from now. It
// never revives a lease that has ended.
func (p *Proxy) Renew(ctx context.Context) (r picket.Renewal, err error) {
	err = p.post(ctx, "/v1/lease/renew", struct{}{}, &r)
	return r, err
}

type stateAnswer struct {
	State picket.TaskState `json:"state"`
}

// Release ends the lease with how the process ended and answers the task's new
// state. exit.Class is one of [picket.ReleaseClasses].
func (p *Proxy) Release(ctx context.Context, exit picket.Exit) (picket.TaskState, error) {
	in := struct {
		Exit        picket.Exit `json:"exit"`
		Detail      string      `json:"detail,omitempty"`
		LastEventID *string     `json:"lastEventId,omitempty"`
	}{exit, exit.Detail, exit.LastEvent}
	in.Exit.Detail = "" // it stands beside the exit
	var out stateAnswer
	err := p.post(ctx, "/v1/lease/release", in, &out)
	return out.State, err
}

// Watch waits up to wait (at most 50 s, whole seconds) for a change of the lease. changed is false
// when the wait ran out; a lease that has ended answers at once. Programs to run are sent until
// their call ids are among known, which lists those that the caller has received.
func (p *Proxy) Watch(ctx context.Context, wait time.Duration,
	known ...string) (w picket.Watch, changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait+15*time.Second)
	defer cancel()
	status := 0
	path := "/v1/lease/watch?waitSeconds=" + strconv.Itoa(int(wait/time.Second))
	if len(known) > 0 {
		path += "&exec=" + url.QueryEscape(strings.Join(known, ","))
	}
	err = p.call(ctx, p.client, http.MethodGet, path, nil, &w, client.WithStatus(&status))
	return w, err == nil && status == http.StatusOK, err
}

// Exit records how the process ended, as evidence: it never changes the task
// and is accepted until 15 minutes after the lease ended.
func (p *Proxy) Exit(ctx context.Context, exit picket.Exit, containment string) error {
	in := struct {
		picket.Exit
		Containment string  `json:"containment,omitempty"`
		LastEventID *string `json:"lastEventId,omitempty"`
	}{exit, containment, exit.LastEvent}
	return p.post(ctx, "/v1/run/exit", in, nil)
}

// LogPiece appends output to a stream (stdout or stderr) of the run, at most 64
// KiB, whose first byte has the given offset; next is where to go on. Bytes
// the server has are ignored; an offset beyond them is [picket.CodeOffset]
// with the fact "expected".
func (p *Proxy) LogPiece(ctx context.Context, piece picket.LogWrite) (next int64, err error) {
	var out struct {
		Next *int64 `json:"next"`
	}
	q := url.Values{"stream": {piece.Stream}, "offset": {strconv.FormatInt(piece.Offset, 10)}}
	if piece.End {
		q.Set("end", "true")
	}
	var opts []client.Option
	if len(piece.Marks) > 0 {
		opts = append(opts, client.WithHeader("X-Picket-Log-Times", logTimes(piece)))
	}
	if err := p.post(ctx, "/v1/run/logs?"+q.Encode(), client.Text(piece.Data), &out, opts...); err != nil {
		return piece.Offset, err
	}
	if out.Next == nil {
		return piece.Offset + int64(len(piece.Data)), nil
	}
	return *out.Next, nil
}

// logTimes writes marks as the header has them: a base, then position:delay.
func logTimes(piece picket.LogWrite) string {
	base := piece.Marks[0].At
	b := strconv.AppendInt(nil, int64(base), 10)
	for i, m := range piece.Marks {
		b = append(b, " ,"[min(i, 1)])
		b = strconv.AppendInt(b, m.Offset-piece.Offset, 10)
		b = append(b, ':')
		b = strconv.AppendInt(b, int64(m.At-base), 10)
	}
	return string(b)
}

// Events writes launcher events, such as run.launched, into the event log.
func (p *Proxy) Events(ctx context.Context, events ...picket.RunEvent) error {
	in := struct {
		Events []picket.RunEvent `json:"events"`
	}{events}
	return p.post(ctx, "/v1/run/events", in, nil)
}

// ExecResult hands in what became of a program that an exec command asked for. The first result of
// a call counts. state_conflict means that nobody waits for it any more.
func (p *Proxy) ExecResult(ctx context.Context, callID string, r picket.ExecResult) error {
	return p.post(ctx, "/v1/run/exec/"+url.PathEscape(callID), r, nil)
}

// Tool calls a tool by name, in and out as the tool's schema has them. It speaks
// with the credential of the agent.
func (p *Proxy) Tool(ctx context.Context, name string, in, out any, opts ...client.Option) error {
	if in == nil {
		in = struct{}{}
	}
	return p.call(ctx, p.agent, http.MethodPost, "/v1/tools/"+url.PathEscape(name), in, out, opts...)
}

// Report pins a progress report.
func (p *Proxy) Report(ctx context.Context, r picket.Progress, opts ...client.Option) (out picket.Reported, err error) {
	err = p.Tool(ctx, "report_progress", r, &out, opts...)
	return out, err
}

// Complete ends the lease with the task's output (any JSON; nil is null) and
// answers the task's new state. The same call again answers the same.
func (p *Proxy) Complete(ctx context.Context, output picket.RawJSON, summary string) (picket.TaskState, error) {
	return p.CompleteWith(ctx, picket.Completion{Output: output, Summary: summary})
}

// CompleteWith is Complete for a task with subtasks. c says what happens to open subtasks; without
// it, open subtasks are refused with children_open.
func (p *Proxy) CompleteWith(ctx context.Context, c picket.Completion) (picket.TaskState, error) {
	var out stateAnswer
	err := p.Tool(ctx, "mark_complete", c, &out)
	return out.State, err
}

// Fail ends the lease without a result and answers the task's new state.
func (p *Proxy) Fail(ctx context.Context, reason string, retryable bool) (picket.TaskState, error) {
	in := struct {
		Reason    string `json:"reason"`
		Retryable bool   `json:"retryable"`
	}{reason, retryable}
	var out stateAnswer
	err := p.Tool(ctx, "mark_failed", in, &out)
	return out.State, err
}

// RequestHelp ends the lease and parks the task until a person answers.
func (p *Proxy) RequestHelp(ctx context.Context, req picket.HelpRequest) (out picket.HelpRequested, err error) {
	err = p.Tool(ctx, "request_human_help", req, &out)
	return out, err
}

// Task reads the task the lease is on.
func (p *Proxy) Task(ctx context.Context) (out picket.Task, err error) {
	err = p.Tool(ctx, "get_task", nil, &out)
	return out, err
}

// Evidence hands in what the run has changed, in place of what was handed in
// before. Like every evidence it never changes the task and is accepted until
// 15 minutes after the lease ended.
func (p *Proxy) Evidence(ctx context.Context, ev picket.Evidence) error {
	return p.post(ctx, "/v1/run/evidence", workspace.EvidenceBodyOf(ev), nil)
}

// Usage reports the use of models that the agent's own output shows, in figures that only grow. The
// difference to the figures of the last report is charged. Like every evidence it is accepted until
// 15 minutes after the lease ended.
func (p *Proxy) Usage(ctx context.Context, u picket.UsageReport) (out picket.Usage, err error) {
	err = p.post(ctx, "/v1/run/usage", u, &out)
	return out, err
}
