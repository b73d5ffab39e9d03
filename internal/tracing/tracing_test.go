package tracing

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/picket-dev/picket"
)

// newTestTracer returns a Tracer whose spans are kept in memory. read sends what is left and returns all.
func newTestTracer(t *testing.T) (tracer *Tracer, read func() tracetest.SpanStubs) {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	tracer = newTracer(t.Context(), kept, "test", slog.New(slog.DiscardHandler))
	return tracer, func() tracetest.SpanStubs {
		t.Helper()
		if err := tracer.provider.ForceFlush(t.Context()); err != nil {
			t.Fatal(err)
		}
		return kept.GetSpans()
	}
}

// fakeSource is a log of a few events.
type fakeSource struct {
	at     atomic.Int64
	events []picket.Event
	tasks  map[string]picket.Task
}

func (f *fakeSource) Namespace() string { return "default" }

func (f *fakeSource) TracePosition(context.Context) (int64, error) { return f.at.Load(), nil }

func (f *fakeSource) AdvanceTraces(_ context.Context, from, to int64) (bool, error) {
	return f.at.CompareAndSwap(from, to), nil
}

func (f *fakeSource) Events(_ context.Context, q picket.EventQuery) (picket.EventPage, error) {
	page, next := picket.EventPage{}, q.After
	for _, e := range f.events {
		if e.Seq > q.After && len(page.Events) < q.Limit {
			next = e.Seq
			if slices.Contains(q.Types, e.Type) {
				page.Events = append(page.Events, e)
			}
		}
	}
	page.Next = fmt.Sprint(next)
	return page, nil
}

func (f *fakeSource) Task(_ context.Context, id string) (picket.Task, error) {
	if task, ok := f.tasks[id]; ok {
		return task, nil
	}
	return picket.Task{}, picket.Refuse(picket.CodeNotFound, "Look.", "there is no task")
}

// export exports everything once.
func export(t *testing.T, tracer *Tracer, f *fakeSource) {
	t.Helper()
	x := &eventExporter{Tracer: tracer, source: f, log: tracer.log}
	for more := true; more; {
		var err error
		if more, err = x.exportPage(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func event(seq int64, kind, task, run string, at picket.Instant, data string) picket.Event {
	return picket.Event{Seq: seq, Type: kind, TaskID: task, RunID: run, At: at, Data: picket.RawJSON(data)}
}

const submitted = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// Each event becomes one span, even if several servers export the same log, and old ones none.
func TestEachEventIsExportedOnce(t *testing.T) {
	now := picket.InstantOf(time.Now())
	old := now - picket.Instant(2*time.Hour/time.Millisecond)
	f := &fakeSource{tasks: map[string]picket.Task{}}
	for i := range int64(250) {
		id := fmt.Sprintf("task_%03d", i)
		at := now
		if i < 50 {
			at = old
		}
		f.tasks[id] = picket.Task{TaskID: id, CreatedAt: at}
		f.events = append(f.events, event(i+1, picket.EventTaskCancelled, id, "", at, `{"state":"cancelled"}`))
	}
	f.events = append(f.events, event(251, picket.EventTaskCancelled, "task_deleted", "", now, `{"state":"cancelled"}`))
	tracer, read := newTestTracer(t)
	done := make(chan bool)
	for range 3 {
		go func() {
			defer func() { done <- true }()
			export(t, tracer, f)
		}()
	}
	for range 3 {
		<-done
	}
	seen := map[string]int{}
	for _, s := range read() {
		seen[s.SpanContext.SpanID().String()]++
	}
	if len(seen) != 200 {
		t.Errorf("%d tasks have a span, want 200", len(seen))
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("the span %s was sent %d times", id, n)
		}
	}
}

// A subtask is below its parent in the same trace if that was submitted, and else linked to it.
func TestSubtasksAndTheirParents(t *testing.T) {
	now, parent := picket.InstantOf(time.Now()), "task_parent"
	f := &fakeSource{tasks: map[string]picket.Task{
		"task_in":  {TaskID: "task_in", Parent: &parent, Trace: &picket.Trace{Parent: submitted}, CreatedAt: now},
		"task_own": {TaskID: "task_own", Parent: &parent, CreatedAt: now},
	}}
	for i, id := range []string{"task_in", "task_own"} {
		f.events = append(f.events, event(int64(i+1), picket.EventTaskCancelled, id, "", now, `{"state":"cancelled"}`))
	}
	tracer, read := newTestTracer(t)
	export(t, tracer, f)
	spans := read()
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	in, own := spans[0], spans[1]
	if in.SpanContext.TraceID().String() != submitted[3:35] || in.Parent.SpanID() != spanID("task", parent) {
		t.Errorf("the subtask of a submitted trace is %+v", in)
	}
	id, _ := traceID(parent, nil)
	if own.Parent.IsValid() || len(own.Links) != 1 || own.Links[0].SpanContext.TraceID() != id ||
		own.Links[0].SpanContext.SpanID() != spanID("task", parent) {
		t.Errorf("the subtask without a trace is %+v", own)
	}
}

// A task that a person has retried waits in its hand-off, and from then on for a worker. A reason in
// the words of a person is not sent.
func TestARetriedTaskWaitsFromItsRetry(t *testing.T) {
	at := picket.InstantOf(time.Now()) - 100_000
	task := picket.Task{TaskID: "task_1", CreatedAt: at, Runs: []picket.Run{
		{RunID: "run_1", Attempt: 1, StartedAt: at + 1000, EndedAt: at + 2000,
			Exit: &picket.Exit{Class: picket.ExitByOperator}},
		{RunID: "run_2", Attempt: 2, StartedAt: at + 9000},
	}}
	lost := event(1, picket.EventLeaseExpired, "task_1", "run_1", at+2000,
		`{"state":"handoff","before":{"state":"leased"}}`)
	lost.Reason = "it looked wrong to me"
	f := &fakeSource{tasks: map[string]picket.Task{"task_1": task}, events: []picket.Event{
		lost,
		event(2, picket.EventTaskRetried, "task_1", "", at+7000, `{"state":"queued","before":{"state":"handoff"}}`),
		event(3, picket.EventTaskLeased, "task_1", "run_2", at+9000, `{"state":"leased"}`),
	}}
	tracer, read := newTestTracer(t)
	export(t, tracer, f)
	took := map[string]time.Duration{}
	for _, s := range read() {
		took[s.Name] = s.EndTime.Sub(s.StartTime)
		if s.Name == "run" && (s.Status.Description != "expired_by_operator" || s.Status.Code != codes.Error) {
			t.Errorf("the run is %+v", s.Status)
		}
	}
	if want := (map[string]time.Duration{"run": time.Second, "hand-off": 5 * time.Second,
		"wait for a worker": 2 * time.Second}); !maps.Equal(took, want) {
		t.Errorf("the spans took %v, want %v", took, want)
	}
}

// A trace that its submitter does not sample is not sent, and a sampler of the environment decides
// the same about all spans of a trace.
func TestTheSamplerDecidesForWholeTraces(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
	tracer, read := newTestTracer(t)
	unsampled := &picket.Trace{Parent: submitted[:len(submitted)-1] + "0"}
	now := time.Now()
	tracer.send("task_x", unsampled, span{name: "task", id: spanID("task", "task_x"), from: now, to: now})
	const tasks = 100
	for i := range tasks {
		id := fmt.Sprintf("task_%d", i)
		tracer.send(id, nil, span{name: "task", id: spanID("task", id), from: now, to: now})
		tracer.send(id, nil, span{name: "run", id: spanID("run", id), parent: spanID("task", id), from: now, to: now})
	}
	perTrace := map[string]int{}
	for _, s := range read() {
		perTrace[s.SpanContext.TraceID().String()]++
	}
	if len(perTrace) < tasks/4 || len(perTrace) > tasks*3/4 || perTrace[submitted[3:35]] != 0 {
		t.Errorf("%d of %d traces were sampled", len(perTrace), tasks)
	}
	for id, n := range perTrace {
		if n != 2 {
			t.Errorf("the trace %s has %d spans", id, n)
		}
	}
}

// A title is sent only if the variable for contents asks for it.
func TestTitlesAreSentOnlyIfAskedFor(t *testing.T) {
	for _, asked := range []bool{false, true} {
		t.Setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", fmt.Sprint(asked))
		now := picket.InstantOf(time.Now())
		f := &fakeSource{
			tasks:  map[string]picket.Task{"task_1": {TaskID: "task_1", Title: "fix\x1b it", CreatedAt: now}},
			events: []picket.Event{event(1, picket.EventTaskCancelled, "task_1", "", now, `{"state":"cancelled"}`)},
		}
		tracer, read := newTestTracer(t)
		export(t, tracer, f)
		has := slices.Contains(read()[0].Attributes, attribute.String("picket.task.title", "fix it"))
		if has != asked {
			t.Errorf("asked for %v, the span has a title: %v", asked, has)
		}
	}
}

func TestVariablesThatTurnTracesOff(t *testing.T) {
	for _, c := range []struct {
		set     []string
		enabled bool
		logged  string // part of what is logged; empty: nothing is
	}{
		{nil, false, ""},
		{[]string{"OTEL_TRACES_EXPORTER", "console"}, false, ""},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://x"}, true, ""},
		{[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://x"}, true, ""},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://x", "OTEL_SDK_DISABLED", "true"}, false, ""},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://x", "OTEL_TRACES_EXPORTER", "none"}, false, ""},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://x", "OTEL_TRACES_EXPORTER", "otlp,console"}, false,
			"traces are off"},
	} {
		t.Run(fmt.Sprint(c.set), func(t *testing.T) {
			for i := 0; i < len(c.set); i += 2 {
				t.Setenv(c.set[i], c.set[i+1])
			}
			var log bytes.Buffer
			tracer := FromEnv(t.Context(), "test", slog.New(slog.NewTextHandler(&log, nil)))
			tracer.Close()
			if (tracer != nil) != c.enabled {
				t.Errorf("enabled: %v", tracer != nil)
			}
			if !strings.Contains(log.String(), c.logged) || c.logged == "" && log.Len() > 0 {
				t.Errorf("logged %q", log.String())
			}
		})
	}
}

// A collector that refuses, and repeats the secret that it was sent, is logged in one line without
// the secret. Calls do not wait for it, and memory stays bounded.
func TestABadCollectorIsOneLineAndNoDelay(t *testing.T) {
	const secret = "s3cr3t-of-the-collector"
	posts := make(chan bool, 100)
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		http.Error(rw, "bad credential "+r.Header.Get("Authorization"), http.StatusUnauthorized)
		posts <- true
	}))
	defer s.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20"+secret+",broken")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	var log bytes.Buffer
	tracer := FromEnv(t.Context(), "test", slog.New(slog.NewTextHandler(&log, nil)))
	stuck := make(chan struct{})
	calls := tracer.NewCalls(func(context.Context, string, string) (picket.Task, error) {
		<-stuck
		return picket.Task{}, nil
	})
	began := time.Now()
	for range 3 * queuedCalls {
		calls.Add(Call{TaskID: "task_1", RunID: "run_1", Tool: "x"})
	}
	if took := time.Since(began); took > 5*time.Second || len(calls.queue) > queuedCalls {
		t.Errorf("%d calls took %s, %d are queued", 3*queuedCalls, took, len(calls.queue))
	}
	close(stuck)
	for range 3 {
		<-posts
	}
	calls.Close()
	tracer.Close()
	n := strings.Count(log.String(), "traces do not reach the collector")
	if n != 1 || strings.Contains(log.String(), secret) {
		t.Errorf("%d lines were logged: %s", n, log.String())
	}
}

// grpcCollector takes traces over gRPC.
type grpcCollector struct {
	collector.UnimplementedTraceServiceServer
	got chan string
}

func (c *grpcCollector) Export(_ context.Context,
	r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.got <- r.ResourceSpans[0].ScopeSpans[0].Spans[0].Name
	return &collector.ExportTraceServiceResponse{}, nil
}

func TestTracesOverGRPC(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &grpcCollector{got: make(chan string, 10)}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	tracer := FromEnv(t.Context(), "test", slog.New(slog.DiscardHandler))
	now := time.Now()
	tracer.send("task_1", nil, span{name: "task", id: spanID("task", "task_1"), from: now, to: now})
	tracer.Close()
	select {
	case name := <-c.got:
		if name != "task" {
			t.Errorf("it got %s", name)
		}
	case <-time.After(10 * time.Second):
		t.Error("nothing arrived")
	}
}

// A protocol that there is not is logged, and nothing fails.
func TestAnUnknownProtocolIsLogged(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
	var log bytes.Buffer
	if FromEnv(t.Context(), "test", slog.New(slog.NewTextHandler(&log, nil))) != nil ||
		!strings.Contains(log.String(), "http/json") {
		t.Errorf("logged: %s", log.String())
	}
}

// A variable that cannot be used is one line that names it. The process goes on, and prints neither the
// endpoint nor the headers, which can hold secrets.
func TestOddVariablesAreOneLine(t *testing.T) {
	const secret = "s3cr3t-in-a-variable"
	for name, c := range map[string]struct {
		set  []string
		off  bool
		want string // "" for no line
	}{
		"a queue below zero":  {[]string{"OTEL_BSP_MAX_QUEUE_SIZE", "-1"}, false, "OTEL_BSP_… is out of range"},
		"a queue of all RAM":  {[]string{"OTEL_BSP_MAX_QUEUE_SIZE", "99999999999"}, false, "out of range"},
		"a batch below zero":  {[]string{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "-1"}, false, "out of range"},
		"no pause":            {[]string{"OTEL_BSP_SCHEDULE_DELAY", "-5"}, false, "out of range"},
		"no time":             {[]string{"OTEL_BSP_EXPORT_TIMEOUT", "0"}, false, "out of range"},
		"a small queue":       {[]string{"OTEL_BSP_MAX_QUEUE_SIZE", "1"}, false, ""},
		"no number":           {[]string{"OTEL_BSP_MAX_QUEUE_SIZE", "many"}, false, ""},
		"a sampler":           {[]string{"OTEL_TRACES_SAMPLER", "nonsense"}, false, "unsupported sampler: nonsense"},
		"an attribute":        {[]string{"OTEL_RESOURCE_ATTRIBUTES", "a=b,x"}, false, "partial resource"},
		"a header without =":  {[]string{"OTEL_EXPORTER_OTLP_HEADERS", "Bearer " + secret}, false, "parse headers"},
		"a header with %zz":   {[]string{"OTEL_EXPORTER_OTLP_HEADERS", "a=Bearer%zz" + secret}, false, "escape header"},
		"a file there is not": {[]string{"OTEL_EXPORTER_OTLP_CERTIFICATE", "/" + secret}, false, "read tls ca cert"},
		"no scheme":           {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "127.0.0.1:4318"}, true, "not a URL such as"},
		"a name for a scheme": {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"}, true, "not a URL such as"},
		"a password": {[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://me:" + secret + "@:x"}, true,
			"not a URL such as"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
			t.Setenv(c.set[0], c.set[1])
			stderr := captureLog(t)
			var log bytes.Buffer
			tracer := FromEnv(t.Context(), "test", slog.New(slog.NewTextHandler(&log, nil)))
			tracer.Close()
			if c.off != (tracer == nil) || strings.Count(log.String(), "\n") != min(len(c.want), 1) ||
				!strings.Contains(log.String(), c.want) {
				t.Errorf("traces %v, logged: %s", tracer != nil, log.String())
			}
			if all := log.String() + stderr(); strings.Contains(all, secret) || stderr() != "" {
				t.Errorf("printed: %s", all)
			}
		})
	}
}

// captureLog sets the loggers of the SDK to what they are when a process begins. printed returns what
// they have printed.
func captureLog(t *testing.T) (printed func() string) {
	t.Helper()
	var out bytes.Buffer
	otel.SetLogger(funcr.New(func(_, args string) { fmt.Fprintln(&out, args) }, funcr.Options{}))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { fmt.Fprintln(&out, err) }))
	return out.String
}

// Spans that are lost when a process ends are logged, even if no export has failed before.
func TestSpansThatAreLostAtTheEndAreLogged(t *testing.T) {
	stuck := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stuck }))
	defer s.Close()
	defer close(stuck)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
	var log bytes.Buffer
	tracer := FromEnv(t.Context(), "test", slog.New(slog.NewTextHandler(&log, nil)))
	now := time.Now()
	tracer.send("task_1", nil, span{name: "task", id: spanID("task", "task_1"), from: now, to: now})
	tracer.Close()
	if n := strings.Count(log.String(), "traces do not reach the collector"); n != 1 {
		t.Errorf("%d lines were logged: %s", n, log.String())
	}
}

// The process of an agent that crashed is an error below its run; one that never started has none.
func TestProcessesOfAgents(t *testing.T) {
	tracer, read := newTestTracer(t)
	p, code, took := tracer.NewProcesses(), 3, int64(1500)
	now := time.Now()
	for _, run := range []string{"run_1", "run_2"} {
		p.Leased(picket.Lease{TaskID: "task_1", RunID: run, FencingToken: 7})
	}
	p.Launched("run_1", 42, now)
	crash := picket.Exit{Class: picket.ExitCrash, Code: &code, DurationMs: &took}
	p.Ended("run_1", crash, "released", now.Add(time.Hour))
	p.Ended("run_2", picket.Exit{Class: picket.ExitCrash}, "released", now)
	spans := read()
	if len(spans) != 1 || len(p.runs) != 0 {
		t.Fatalf("%d spans, %d runs are kept", len(spans), len(p.runs))
	}
	s := spans[0]
	if s.Status.Code != codes.Error || s.Status.Description != "crash" || s.Parent.SpanID() != spanID("run", "run_1") ||
		s.EndTime.Sub(s.StartTime) != 1500*time.Millisecond ||
		!slices.Contains(s.Attributes, attribute.Int("process.exit.code", 3)) {
		t.Errorf("the process is %+v", s)
	}
}
