// Package tracing sends what happens to tasks as OpenTelemetry traces to a collector, over OTLP. A
// task is one trace. The ids of its spans are made of the ids of task, run and hand-off, so that
// server, tool proxy and adapter agree on them without talking to each other.
//
// Spans hold ids, classes, times, counts and costs. They hold no texts of agents or people, except
// the title of a task if OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is true.
package tracing

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// Tracer sends spans. A nil Tracer sends none: every method of it returns at once. A Tracer never
// waits for the collector. Spans that do not fit into its queue are dropped.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	log      *slog.Logger
	titles   bool
}

// Enabled reports whether the standard variables of the environment ask for traces.
func Enabled() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	switch exporter := strings.TrimSpace(os.Getenv("OTEL_TRACES_EXPORTER")); exporter {
	case "", "otlp":
	default:
		return false
	}
	return endpoint() != ""
}

// warnOfExporter logs that traces are off although there is a collector, because of an exporter
// that is not supported.
func warnOfExporter(log *slog.Logger) {
	exporter := strings.TrimSpace(os.Getenv("OTEL_TRACES_EXPORTER"))
	off := strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true")
	if endpoint() != "" && !off && exporter != "" && exporter != "none" && exporter != "otlp" {
		log.Warn("traces are off: OTEL_TRACES_EXPORTER has another value than otlp or none")
	}
}

// endpoint is the URL of the collector, as the environment names it.
func endpoint() string {
	return cmp.Or(strings.TrimSpace(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")),
		strings.TrimSpace(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")))
}

// FromEnv returns a Tracer as the standard variables of the environment ask for it, and nil if they
// ask for none. service is the name of the service if OTEL_SERVICE_NAME does not set one. Variables
// that cannot be used are logged, and the answer is nil: no process fails for the sake of its traces.
func FromEnv(ctx context.Context, service string, log *slog.Logger) *Tracer {
	if !Enabled() {
		warnOfExporter(log)
		return nil
	}
	// The SDK reads the variables from here on. Its own logger prints those that it cannot read, and
	// headers are secrets.
	settings := settingErrors{log: log}
	otel.SetLogger(logr.New(settings))
	otel.SetErrorHandler(settings)
	exporter, err := newExporter(ctx)
	if err != nil {
		log.Warn("no traces are sent", "err", redact(err.Error()), "fix", "correct OTEL_EXPORTER_OTLP_…")
		return nil
	}
	t := newTracer(ctx, exporter, service, log)
	otel.SetErrorHandler(&exportErrors{log: log})
	return t
}

func newTracer(ctx context.Context, exporter sdktrace.SpanExporter, service string, log *slog.Logger) *Tracer {
	// What the environment names comes last and wins. The provider reads it again, and its error is logged.
	about, _ := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", service)),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter, boundBatches), sdktrace.WithResource(about),
		sdktrace.WithIDGenerator(givenIDs{}))
	return &Tracer{
		provider: provider,
		tracer:   provider.Tracer("github.com/picket-dev/picket"),
		log:      log,
		titles:   strings.EqualFold(os.Getenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"), "true"),
	}
}

// maxQueuedSpans bounds the memory that OTEL_BSP_MAX_QUEUE_SIZE can ask for.
const maxQueuedSpans = 1 << 20

// boundBatches replaces what OTEL_BSP_… sets out of range by the default. The SDK takes every number:
// with some it panics, and with others it exports without a pause.
func boundBatches(o *sdktrace.BatchSpanProcessorOptions) {
	given := *o
	if o.MaxQueueSize < 1 || o.MaxQueueSize > maxQueuedSpans {
		o.MaxQueueSize = sdktrace.DefaultMaxQueueSize
	}
	if o.MaxExportBatchSize < 1 || o.MaxExportBatchSize > o.MaxQueueSize {
		o.MaxExportBatchSize = min(sdktrace.DefaultMaxExportBatchSize, o.MaxQueueSize)
	}
	if o.BatchTimeout <= 0 {
		o.BatchTimeout = sdktrace.DefaultScheduleDelay * time.Millisecond
	}
	if o.ExportTimeout <= 0 {
		o.ExportTimeout = sdktrace.DefaultExportTimeout * time.Millisecond
	}
	if *o != given {
		otel.Handle(errors.New("a number in OTEL_BSP_… is out of range"))
	}
}

// newExporter makes the exporter of the protocol that the environment names. It connects later.
func newExporter(ctx context.Context) (*otlptrace.Exporter, error) {
	// The SDK would send to localhost instead. The value is not repeated, because it can hold a password.
	at, err := url.Parse(endpoint())
	if err != nil || at.Scheme != "unix" && (at.Host == "" || at.Scheme != "http" && at.Scheme != "https") {
		return nil, errors.New("the endpoint is not a URL such as http://127.0.0.1:4318")
	}
	protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"),
		"http/protobuf")
	switch protocol {
	case "http/protobuf":
		return otlptracehttp.New(ctx)
	case "grpc":
		return otlptracegrpc.New(ctx)
	}
	return nil, fmt.Errorf("the protocol %.40q is neither http/protobuf nor grpc", protocol)
}

// closePatience bounds how long the end of a process waits for its last spans.
const closePatience = 2 * time.Second

// Close sends what is left, within two seconds.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// settingErrors logs which variables the SDK cannot use, without their values.
type settingErrors struct{ log *slog.Logger }

// Handle implements [otel.ErrorHandler].
func (s settingErrors) Handle(err error) {
	s.log.Warn("a variable OTEL_… is ignored", "err", redact(err.Error()))
}

// Error implements [logr.LogSink]. doing is a text of the SDK. Everything else can hold a secret.
func (s settingErrors) Error(_ error, doing string, _ ...any) {
	s.log.Warn("a variable OTEL_EXPORTER_OTLP_… cannot be read, and is ignored", "doing", doing)
}

// Init implements [logr.LogSink].
func (settingErrors) Init(logr.RuntimeInfo) {}

// Enabled implements [logr.LogSink]. Only errors are logged.
func (settingErrors) Enabled(int) bool { return false }

// Info implements [logr.LogSink].
func (settingErrors) Info(int, string, ...any) {}

// WithValues implements [logr.LogSink].
func (s settingErrors) WithValues(...any) logr.LogSink { return s }

// WithName implements [logr.LogSink].
func (s settingErrors) WithName(string) logr.LogSink { return s }

// exportErrors logs why spans do not arrive: at most one line in ten minutes.
type exportErrors struct {
	log  *slog.Logger
	mu   sync.Mutex
	last time.Time
}

const exportErrorPause = 10 * time.Minute

// Handle implements [otel.ErrorHandler].
func (e *exportErrors) Handle(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil || !e.last.IsZero() && time.Since(e.last) < exportErrorPause {
		return
	}
	e.last = time.Now()
	e.log.Warn("traces do not reach the collector, and are dropped", "err", redact(err.Error()))
}

// redact removes the values of the headers of OTLP from a text, in case a collector repeats them.
func redact(s string) string {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		for pair := range strings.SplitSeq(os.Getenv(name), ",") {
			_, value, _ := strings.Cut(pair, "=")
			plain, _ := url.PathUnescape(value)
			for _, secret := range append(strings.Fields(plain), strings.TrimSpace(value)) {
				if len(secret) > 3 {
					s = strings.ReplaceAll(s, secret, "[redacted]")
				}
			}
		}
	}
	return text.OneLine(text.Shorten(s, 500))
}

// givenIDs gives a span the ids that its context names.
type givenIDs struct{}

type idsKey struct{}

// ids name a span in its trace.
type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

// NewIDs implements [sdktrace.IDGenerator].
func (givenIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	given, _ := ctx.Value(idsKey{}).(ids)
	return given.trace, given.span
}

// NewSpanID implements [sdktrace.IDGenerator].
func (givenIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	given, _ := ctx.Value(idsKey{}).(ids)
	return given.span
}

// spanID makes the id of a span from what it is about.
func spanID(kind, id string) (out trace.SpanID) {
	sum := sha256.Sum256([]byte("picket " + kind + " " + id))
	copy(out[:], sum[:])
	return out
}

// traceID is that of the submitter, or one made from the id of the task.
func traceID(taskID string, of *picket.Trace) (id trace.TraceID, submitted bool) {
	if of != nil {
		if id, err := trace.TraceIDFromHex(of.ID()); err == nil {
			return id, true
		}
	}
	sum := sha256.Sum256([]byte("picket task " + taskID))
	copy(id[:], sum[:])
	return id, false
}

// span is one that has ended.
type span struct {
	name     string
	id       trace.SpanID
	parent   trace.SpanID // zero: the submitter's, if there is one
	kind     trace.SpanKind
	from, to time.Time
	problem  string // "" if it went well
	link     trace.SpanContext
	attrs    []attribute.KeyValue
}

// send hands a span of a task to the queue of the SDK. It never waits.
func (t *Tracer) send(taskID string, of *picket.Trace, s span) {
	ctx, within := context.Background(), traceOfTask(taskID, of)
	switch {
	case within.submitted && !s.parent.IsValid():
		s.parent = within.parent
	case s.parent.IsValid() && !within.submitted:
		within.flags = t.sampled(taskID, within.id)
	}
	if s.parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: within.id, SpanID: s.parent, TraceFlags: within.flags, TraceState: within.state, Remote: true,
		}))
	}
	ctx = context.WithValue(ctx, idsKey{}, ids{within.id, s.id})
	opts := []trace.SpanStartOption{trace.WithTimestamp(s.from), trace.WithSpanKind(s.kind),
		trace.WithAttributes(s.attrs...)}
	if s.link.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: s.link}))
	}
	_, started := t.tracer.Start(ctx, s.name, opts...)
	if s.problem != "" {
		started.SetStatus(codes.Error, s.problem)
	}
	if s.to.Before(s.from) {
		s.to = s.from
	}
	started.End(trace.WithTimestamp(s.to))
}

// taskTrace is the trace of a task.
type taskTrace struct {
	id        trace.TraceID
	submitted bool         // its submitter named it
	parent    trace.SpanID // the submitter's
	flags     trace.TraceFlags
	state     trace.TraceState
}

func traceOfTask(taskID string, of *picket.Trace) (out taskTrace) {
	if out.id, out.submitted = traceID(taskID, of); !out.submitted {
		return out
	}
	parts := strings.Split(of.Parent, "-") // 00-<trace id>-<parent id>-<flags>
	out.parent, _ = trace.SpanIDFromHex(parts[2])
	out.flags = trace.TraceFlags(parts[3][1] & 1)
	out.state, _ = trace.ParseTraceState(of.State)
	return out
}

// sampled asks the sampler about the root of a trace. Every process gets the same answer, because a
// sampler decides by the id of the trace.
func (t *Tracer) sampled(taskID string, id trace.TraceID) trace.TraceFlags {
	ctx := context.WithValue(context.Background(), idsKey{}, ids{id, spanID("task", taskID)})
	_, root := t.tracer.Start(ctx, "task") // it never ends, so it is not sent
	return root.SpanContext().TraceFlags() & trace.FlagsSampled
}

// withText adds attributes of texts that are not empty.
func withText(attrs []attribute.KeyValue, pairs ...string) []attribute.KeyValue {
	attrs = slices.Clip(attrs)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			attrs = append(attrs, attribute.String(pairs[i], text.OneLine(text.Shorten(pairs[i+1], 256))))
		}
	}
	return attrs
}
