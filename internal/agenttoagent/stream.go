package agenttoagent

import (
	"context"
	"io"
	"mime"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket/internal/conformance"
	"github.com/picket-dev/picket/internal/sse"
)

// maxEvent bounds one event of a stream, in bytes.
const maxEvent = 4 << 20

// stream is the answer to an operation that streams.
type stream struct {
	*reply // of a refusal; failed is nil if the stream is open
	c      caller
	events chan fields   // the data of each event; closed at the end
	whole  []fields      // the data of the events that were read
	read   []fields      // the StreamResponse of each
	close  func()        // ends the stream
	err    chan error    // how it ended
	opened time.Time     // when the answer began
	ended  chan struct{} // closed with events
}

// open does an operation that streams.
func (c caller) open(operation string, params fields) *stream {
	ctx, cancel := context.WithCancel(c.Ctx)
	a, body := c.s.Open(ctx, c.request(operation, params))
	s := &stream{c: c, events: make(chan fields, 1000), err: make(chan error, 1), ended: make(chan struct{}),
		opened: time.Now(), reply: &reply{answer: a}}
	kind, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if a.Err == nil && kind == "text/event-stream" {
		go s.receive(body)
		s.close = sync.OnceFunc(func() { cancel(); <-s.ended })
		c.stops = append(c.stops, s.close)
		c.Accept(a)
		return s
	}
	if a.Err == nil {
		a.ReadFrom(body)
	}
	cancel()
	c.Accept(a)
	s.reply = c.decode(a)
	if s.failed == nil {
		s.failed = &failure{status: a.Status, message: "the answer is not a stream"}
	}
	return s
}

// receive reads the stream to its end.
func (s *stream) receive(body io.ReadCloser) {
	defer close(s.ended)
	defer close(s.events)
	defer body.Close()
	for r := sse.NewReader(body, maxEvent); ; {
		ev, err := r.Next()
		if len(ev.Data) > 0 {
			var data fields
			if json.Unmarshal(ev.Data, &data) != nil {
				data = fields{"not a JSON object": string(ev.Data)}
			}
			s.events <- data
		}
		if err != nil {
			s.err <- err
			return
		}
	}
}

// streams does an operation, and expects a stream.
func (c caller) streams(operation string, params fields) *stream {
	s := c.open(operation, params)
	c.Assert(s.Err == nil && s.failed == nil && s.Status == 200, s.answer, "status 200 and a stream of type text/event-stream")
	return s
}

// sends sends a message, and follows its task.
func (c caller) sends(message fields) *stream {
	return c.streams("SendStreamingMessage", fields{"message": message})
}

// next is the StreamResponse of the next event; nil: the stream has ended.
func (s *stream) next() fields {
	select {
	case data, open := <-s.events:
		if !open {
			s.expectCleanEnd()
			return nil
		}
		s.whole = append(s.whole, data)
		s.answer.Raw = []byte(conformance.JSON(data))
		response := data
		if s.c.b.name == needRPC {
			response = object(data, "result")
		}
		s.c.Assert(response != nil && data["error"] == nil, s.answer, "an event with a StreamResponse")
		s.read = append(s.read, response)
		s.c.own(response, nil)
		return response
	case <-time.After(s.c.s.cfg.Slack):
		s.c.Fail("another event, or the end of the stream", "neither within "+s.c.s.cfg.Slack.String())
	case <-s.c.Ctx.Done():
		s.c.NotRun("the run was ended")
	}
	return nil
}

// expectCleanEnd expects that the stream has ended and was not broken off.
func (s *stream) expectCleanEnd() {
	if err := <-s.err; err != io.EOF {
		s.c.Fail("the end of the stream", err.Error())
	}
	s.err <- io.EOF
}

// task is the task with which the stream begins. Without one, the rule is not run.
func (s *stream) task() fields {
	first := s.next()
	if has(first, "message") {
		s.c.NotRun("the agent answers with a message, and not with a task")
	}
	task := object(first, "task")
	s.c.Assert(text(task, "id") != "", s.answer, "a task as the first event")
	return task
}

// rest reads the stream to its end, and returns what it has read in all.
func (s *stream) rest() []fields {
	for s.next() != nil {
	}
	return s.read
}

// until reads the stream until the task is in one of some states.
func (s *stream) until(states ...string) {
	for {
		response := s.next()
		s.c.Assert(response != nil, s.answer, "a task that is %v before the stream ends", states)
		for _, state := range states {
			if stateIn(response) == state {
				return
			}
		}
	}
}

// stateIn is the state that an event tells; empty: none.
func stateIn(response fields) string {
	if s := text(response, "task.status.state"); s != "" {
		return s
	}
	return text(response, "statusUpdate.status.state")
}

// states are those that events tell, in their order, without repetitions.
func states(responses []fields) (all []string) {
	for _, r := range responses {
		if s := stateIn(r); s != "" && (len(all) == 0 || all[len(all)-1] != s) {
			all = append(all, s)
		}
	}
	return all
}

// held begins a task that is worked on until it is cancelled, or that nobody works on.
func (c caller) held(change ...fields) fields {
	task := c.begins("tck-cancel", change...)
	if terminal(task) {
		c.NotRun("the agent has ended the task at once, so that nothing is left to follow")
	}
	if c.s.missing[needWorker] == "" {
		return c.awaitState(text(task, "id"), append([]string{working}, terminalStates...)...)
	}
	return task
}

// subscribed subscribes to a task, and reads the first event.
func (c caller) subscribed(id string) *stream {
	s := c.streams("SubscribeToTask", fields{"id": id})
	s.task()
	return s
}

// cancels cancels a task.
func (c caller) cancels(id string) { c.gets("CancelTask", fields{"id": id}) }
