//go:build linux

package e2e

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// receivedSpan is a span as a collector gets it.
type receivedSpan struct {
	name, service    string
	trace, id, above string
	from, to         uint64 // ns
	problem          string
	attrs            map[string]string
}

// traceCollector takes traces over OTLP.
type traceCollector struct {
	*httptest.Server
	t       *testing.T
	mu      sync.Mutex
	spans   []receivedSpan
	raw     []byte
	headers http.Header
}

func newTraceCollector(t *testing.T) *traceCollector {
	c := &traceCollector{t: t}
	c.Server = httptest.NewServer(http.HandlerFunc(c.take))
	t.Cleanup(c.Close)
	return c
}

func (c *traceCollector) take(rw http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			c.t.Error(err)
			return
		}
		body = z
	}
	raw, err := io.ReadAll(body)
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(raw, &request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		c.t.Errorf("%s: %v", r.URL.Path, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw, c.headers = append(c.raw, raw...), r.Header
	for _, of := range request.ResourceSpans {
		service := attributesOf(of.Resource.Attributes)["service.name"]
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, newReceivedSpan(service, s))
			}
		}
	}
	answer, _ := proto.Marshal(&collector.ExportTraceServiceResponse{})
	rw.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = rw.Write(answer)
}

func newReceivedSpan(service string, s *spans.Span) receivedSpan {
	out := receivedSpan{
		name: s.Name, service: service, trace: fmt.Sprintf("%x", s.TraceId), id: fmt.Sprintf("%x", s.SpanId),
		above: fmt.Sprintf("%x", s.ParentSpanId), from: s.StartTimeUnixNano, to: s.EndTimeUnixNano,
		attrs: attributesOf(s.Attributes),
	}
	if s.Status.GetCode() == spans.Status_STATUS_CODE_ERROR {
		out.problem = s.Status.Message
	}
	return out
}

func attributesOf(list []*common.KeyValue) map[string]string {
	all := map[string]string{}
	for _, kv := range list {
		switch v := kv.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			all[kv.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			all[kv.Key] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_DoubleValue:
			all[kv.Key] = fmt.Sprint(v.DoubleValue)
		case *common.AnyValue_BoolValue:
			all[kv.Key] = fmt.Sprint(v.BoolValue)
		}
	}
	return all
}

// of are the spans of a task, those with a name if one is given.
func (c *traceCollector) of(task, name string) (all []receivedSpan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.attrs["picket.task.id"] == task && (name == "" || s.name == name) {
			all = append(all, s)
		}
	}
	return all
}

// await waits for n spans of a task with a name, and returns them by the time at which they begin.
func (c *traceCollector) await(w *testEnv, task, name string, n int) []receivedSpan {
	w.t.Helper()
	var got []receivedSpan
	w.until(fmt.Sprintf("%d spans %s of %s", n, name, task), func() bool {
		got = c.of(task, name)
		return len(got) >= n
	})
	if len(got) != n {
		w.t.Fatalf("%d spans %s, want %d", len(got), name, n)
	}
	slices.SortFunc(got, func(a, b receivedSpan) int { return int(int64(a.from) - int64(b.from)) })
	return got
}

const (
	collectorSecret = "s3cr3t-of-the-collector"
	givenTrace      = "0af7651916cd43dd8448eb211c80319c"
	givenParent     = "b7ad6b7169203331"
)

// traced is a world whose servers and adapters send traces, with a paid tool and a model.
func (w *testEnv) traced(endpoint string, s *paidService, model string) serverSet {
	w.t.Helper()
	at, _ := url.Parse(s.URL)
	settings := fmt.Sprintf(`tools:
  prices: {http_request: {call: %s}}
  http_request: {allow: [%q], timeout: 3s}
  models: {"claude-*": {input: 3, output: 15, cache_read: 0.3, cache_write: 3.75}}
  llm: {anthropic: {url: %q, key_env: MODEL_KEY}}
`, price, at.Host, model)
	if err := os.MkdirAll(w.path("config", "picket"), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.path("config", "picket", "picket.yaml"), []byte(settings), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.env = append(w.env, "MODEL_KEY=sk-model", "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint,
		"OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20"+collectorSecret, "OTEL_BSP_SCHEDULE_DELAY=50",
		"OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test")
	w.store()
	w.ok("init", "--redis", w.storeURL(), "--secret-file", w.path("secret.key"), "--admin-key-file",
		w.path("data", "picket", "admin.key"))
	w.key = w.secret("admin.key")
	var servers serverSet
	servers.dialAll(w, "")
	w.url = servers.mainURL
	w.events = followEvents(w)
	return servers
}

// fakeAnthropic answers every message with some usage.
func fakeAnthropic(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprint(rw, `{"type":"message","content":[{"type":"text","text":"the answer of the model"}],`+
			`"usage":{"input_tokens":100,"output_tokens":20,"cache_read_input_tokens":1000,`+
			`"cache_creation_input_tokens":0}}`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// A task is one trace, made of spans of a server, a tool proxy and an adapter in processes of their
// own: waiting, runs, calls, hand-offs and reviews. No text of people or agents is in it, and no agent
// learns the secret of the collector.
func TestATaskIsOneTrace(t *testing.T) {
	w, c, s := newTestEnv(t), newTraceCollector(t), newPaidService(t)
	servers := w.traced(c.URL, s, fakeAnthropic(t))
	const script = `env | grep -v LEASE_TOKEN >"$E2E/agent.env"
if grep -q staging "$PICKET_TASK_FILE"; then exec picket tool mark_complete --output "used staging"; fi
exec picket tool request_human_help --question "Which database?" --options live --options staging`
	cmd := exec.Command(binary(), "adapter", "--agent-id", "worker", "--log-level", "debug", "--env", "E2E", "--",
		"sh", "-c", script)
	w.env = append(w.env, "PICKET_URL="+w.url, "PICKET_API_KEY="+w.key)
	worker := w.launch("worker", cmd)

	// Through an adapter: a question, its answer, a review.
	sp := spec("a title that nobody asked to export", 60)
	got := w.api("POST", "/tasks", sp, "Traceparent", "00-"+givenTrace+"-"+givenParent+"-01", "Tracestate", "vendor=1")
	var task picket.Task
	decodeInto(t, got.body, &task)
	w.of(task.TaskID, picket.EventTaskHandoff)
	w.ok("handoff", "answer", w.task(task.TaskID).Handoff.HandoffID, "--option", "2")
	w.of(task.TaskID, picket.EventTaskReview)
	w.exited(task.TaskID, 2)
	w.ok("review", "approve", task.TaskID)

	root := c.await(w, task.TaskID, "task", 1)[0]
	runs := c.await(w, task.TaskID, "run", 2)
	waits := c.await(w, task.TaskID, "wait for a worker", 2)
	processes := c.await(w, task.TaskID, "agent process", 2)
	handoff, review := c.await(w, task.TaskID, "hand-off", 1)[0], c.await(w, task.TaskID, "review", 1)[0]
	calls := c.await(w, task.TaskID, "execute_tool request_human_help", 1)
	if root.above != givenParent || root.attrs["picket.task.state"] != "completed" || root.problem != "" {
		t.Errorf("the root is %+v", root)
	}
	for _, x := range slices.Concat(runs, waits, []receivedSpan{handoff, review}) {
		if x.above != root.id || x.trace != givenTrace ||
			x.service != "picket-orchestrator" && x.service != "picket-reaper" {
			t.Errorf("%+v is not below the task", x)
		}
	}
	for i, run := range runs {
		if run.attrs["picket.fencing_token"] != fmt.Sprint(i+1) || run.attrs["picket.agent.id"] != "worker" {
			t.Errorf("run %d is %+v", i, run)
		}
		if p := processes[i]; p.above != run.id || p.trace != givenTrace || p.service != "picket-adapter" ||
			p.attrs["process.exit.code"] != "0" {
			t.Errorf("the process of run %d is %+v", i, p)
		}
	}
	if runs[0].attrs["picket.run.class"] != "released" || runs[1].attrs["picket.run.class"] != "success" {
		t.Errorf("the runs are %+v", runs)
	}
	if calls[0].above != runs[0].id || calls[0].service != "picket-toolproxy" {
		t.Errorf("the call is %+v, the run %+v", calls[0], runs[0])
	}
	if handoff.from != runs[0].to || handoff.to <= handoff.from || handoff.attrs["picket.handoff.kind"] != "question" ||
		waits[1].from < handoff.to || waits[1].to != runs[1].from {
		t.Errorf("the hand-off is %+v, then the task waits %+v", handoff, waits[1])
	}
	if review.from != runs[1].to || review.attrs["picket.decision"] != "approved" || review.to != root.to {
		t.Errorf("the review is %+v", review)
	}

	// A paid tool, a model, and a lease that is lost, without an adapter and without a submitted trace.
	worker.signal(15)
	worker.wait()
	lost := picket.TaskSpec{Title: "lost", Role: "lost", LeaseWindowSeconds: new(10),
		BudgetEnvelope: &budget.Envelope{USD: 1_000_000_000, Tokens: 100_000}}
	w.submit(lost)
	lease := w.leaseOf("lost")
	if got, err := pay(servers.proxyURL, lease, s.URL+"/", "GET"); err != nil || got.status != 200 {
		t.Fatalf("%v %s", err, got.body)
	}
	ask := map[string]any{"model": "claude-opus-4-5", "max_tokens": 100,
		"messages": []any{map[string]any{"role": "user", "content": "the prompt of the agent"}}}
	if got := w.call(lease.LeaseToken.Reveal(), "POST", servers.proxyURL+"/llm/anthropic/v1/messages", ask,
		"Anthropic-Version", "2023-06-01"); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	run := c.await(w, lease.TaskID, "run", 1)[0]
	if !strings.HasPrefix(run.problem, "the lease was lost: ") || run.attrs["picket.lease.lost"] == "" {
		t.Errorf("the lost run is %+v", run)
	}
	tool := c.await(w, lease.TaskID, "execute_tool http_request", 1)[0]
	model := c.await(w, lease.TaskID, "chat claude-opus-4-5", 1)[0]
	if tool.above != run.id || tool.trace != run.trace || tool.attrs["picket.cost.usd"] != "0.3" ||
		tool.attrs["picket.fencing_token"] != "1" {
		t.Errorf("the paid call is %+v", tool)
	}
	for name, want := range map[string]string{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic", "gen_ai.request.model": "claude-opus-4-5",
		"gen_ai.usage.input_tokens": "1100", "gen_ai.usage.output_tokens": "20",
		"gen_ai.usage.cache_read.input_tokens": "1000", "picket.cost.usd": "0.0009",
	} {
		if model.attrs[name] != want || model.above != run.id {
			t.Errorf("the call of the model has %s %q, want %q", name, model.attrs[name], want)
		}
	}

	if c.headers.Get("Authorization") != "Bearer "+collectorSecret {
		t.Errorf("the collector got %v", c.headers)
	}
	for _, text := range []string{"nobody asked", "Which database", "staging", "the prompt of", "the answer of"} {
		if strings.Contains(string(c.raw), text) {
			t.Errorf("the traces contain %q", text)
		}
	}
	if env := w.read("agent.env"); strings.Contains(env, collectorSecret) || strings.Contains(env, "OTEL_") ||
		!strings.Contains(env, "TRACEPARENT=00-"+givenTrace+"-"+givenParent+"-01") {
		t.Errorf("the agent's environment is %s", env)
	}
}
