package tracing

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// Call is a call of a tool or of a language model that has ended.
type Call struct {
	Namespace string
	TaskID    string
	RunID     string
	Token     int64  // the fencing token under which it was admitted, 0 if that is not known
	Tool      string // as the ledger names it
	CallID    string // of its reservation, "" if it is free
	Cost      budget.Envelope
	Outcome   picket.CallOutcome
	Replayed  bool        // it was made before: its answer was given again
	Code      picket.Code // of the refusal, "" if it was answered
	From, To  time.Time

	// Model, Vendor and Usage are of calls of language models.
	Model  string
	Vendor string
	Usage  budget.TokenUsage
}

// Calls makes spans of calls. A nil Calls makes none.
type Calls struct {
	tracer *Tracer
	lookup func(ctx context.Context, namespace, taskID string) (picket.Task, error)
	queue  chan Call
	log    *slog.Logger
	traces map[string]*picket.Trace // of tasks by namespace and id; only run uses it

	closing    chan struct{}
	ended      chan struct{}
	lookups    context.Context // ends some time after Close has begun
	endLookups context.CancelFunc
}

// Bounds of the memory of Calls.
const (
	queuedCalls = 2048
	knownTraces = 10_000
)

// NewCalls returns what makes spans of calls. lookup finds a task, whose trace is asked for once. It
// runs beside the calls, and never makes one wait. Call Close at the end.
func (t *Tracer) NewCalls(lookup func(ctx context.Context, namespace, taskID string) (picket.Task, error)) *Calls {
	if t == nil {
		return nil
	}
	c := &Calls{tracer: t, lookup: lookup, queue: make(chan Call, queuedCalls), closing: make(chan struct{}),
		ended: make(chan struct{}), log: t.log, traces: map[string]*picket.Trace{}}
	c.lookups, c.endLookups = context.WithCancel(context.Background())
	go c.run()
	return c
}

// Add queues a call. When the queue is full, the call gets no span.
func (c *Calls) Add(call Call) {
	select {
	case c.queue <- call:
	default:
	}
}

// run makes spans of queued calls until Close, and of those that are queued then.
func (c *Calls) run() {
	defer close(c.ended)
	for {
		select {
		case call := <-c.queue:
			c.send(call)
			continue
		case <-c.closing:
		}
		for {
			select {
			case call := <-c.queue:
				c.send(call)
			default:
				return
			}
		}
	}
}

// Close makes spans of the calls that are queued. Call it when no call is under way.
func (c *Calls) Close() {
	if c != nil {
		patience := time.AfterFunc(closePatience, c.endLookups)
		defer patience.Stop()
		close(c.closing)
		<-c.ended
		c.endLookups()
	}
}

// send makes the span of a call. A call whose task is not found gets none.
func (c *Calls) send(call Call) {
	of, err := c.traceOf(call.Namespace, call.TaskID)
	if err != nil {
		c.log.Debug("a call has no span", "task", call.TaskID, "err", err)
		return
	}
	c.tracer.send(call.TaskID, of, call.span())
}

func (c *Calls) traceOf(namespace, taskID string) (*picket.Trace, error) {
	key := namespace + " " + taskID
	if of, known := c.traces[key]; known {
		return of, nil
	}
	ctx, cancel := context.WithTimeout(c.lookups, 2*time.Second)
	defer cancel()
	task, err := c.lookup(ctx, namespace, taskID)
	if err != nil {
		return nil, err
	}
	if len(c.traces) >= knownTraces {
		clear(c.traces)
	}
	c.traces[key] = task.Trace
	return task.Trace, nil
}

// span is the span of a call, by the semantic conventions for generative AI.
func (call Call) span() span {
	s := span{parent: spanID("run", call.RunID), from: call.From, to: call.To}
	_, _ = rand.Read(s.id[:]) // nothing else refers to it
	s.attrs = withText(nil, "picket.namespace", call.Namespace, "picket.task.id", call.TaskID,
		"picket.run.id", call.RunID, "picket.call.id", call.CallID, "picket.call.outcome", string(call.Outcome))
	if call.Token > 0 {
		s.attrs = append(s.attrs, attribute.Int64("picket.fencing_token", call.Token))
	}
	if call.CallID != "" {
		s.attrs = append(s.attrs, attribute.Float64("picket.cost.usd", float64(call.Cost.USD)/1e9))
	}
	if call.Replayed {
		s.attrs = append(s.attrs, attribute.Bool("picket.call.replayed", true))
	}
	if call.Vendor != "" {
		model := withText(nil, "gen_ai.request.model", call.Model)
		s.name, s.kind = "chat", trace.SpanKindClient
		if len(model) > 0 {
			s.name += " " + model[0].Value.AsString()
		}
		s.attrs = append(withText(append(s.attrs, model...), "gen_ai.operation.name", "chat",
			"gen_ai.provider.name", call.Vendor),
			attribute.Int64("gen_ai.usage.input_tokens",
				call.Usage.Input+call.Usage.CacheRead+call.Usage.CacheWrite+call.Usage.CacheWriteHour),
			attribute.Int64("gen_ai.usage.output_tokens", call.Usage.Output),
			attribute.Int64("gen_ai.usage.cache_read.input_tokens", call.Usage.CacheRead),
			attribute.Int64("gen_ai.usage.cache_creation.input_tokens", call.Usage.CacheWrite+call.Usage.CacheWriteHour))
	} else {
		tool := withText(nil, "gen_ai.tool.name", call.Tool)
		s.name, s.kind = "execute_tool", trace.SpanKindInternal
		if len(tool) > 0 {
			s.name += " " + tool[0].Value.AsString()
		}
		s.attrs = withText(append(s.attrs, tool...), "gen_ai.operation.name", "execute_tool",
			"gen_ai.tool.call.id", call.CallID)
	}
	if call.Code != "" {
		s.problem = string(call.Code)
		s.attrs = withText(s.attrs, "error.type", string(call.Code))
	}
	return s
}
