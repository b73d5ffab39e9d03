package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/a2a"
	"github.com/picket-dev/picket/orchestrator/api"
)

const a2aText = "1,000 subscribers of one task at an A2A endpoint against one subscriber. The agent emits status messages, each when all subscribers have the one before; " +
	"each subscriber must get each message once, in order, or the run fails. Commands are all that Redis did for a message, those inside scripts and of the agent's own call included. " +
	"The time is from the call of the agent until the last subscriber has the message, p50. " +
	"The heap is that of server and subscribers together, for each subscriber, 1,000 of them against 100; stacks are not in it."

// a2aUpdates is how many messages an agent emits in a round.
const a2aUpdates = 50

// subscribers measures what many streams of one task cost.
func subscribers(ctx context.Context, b *bench) error {
	server, err := startRedis(ctx, "off")
	if err != nil {
		return err
	}
	defer server.stop()
	store, sealer, err := openStore(ctx, server, true)
	if err != nil {
		return err
	}
	defer store.Close()
	e, err := openEndpoint(ctx, server, store, sealer)
	if err != nil {
		return err
	}
	defer e.close()
	e.idle = runtime.NumGoroutine()
	many := b.pick(1000, 100)
	updates := func(n int) contender {
		return contender{fmt.Sprintf("%d subscribers", n), func(ctx context.Context) (sample, error) {
			return e.updates(ctx, n, a2aUpdates)
		}}
	}
	took, err := b.inTurn(ctx, "a2a", "µs", updates(many), updates(1))
	if err != nil {
		return err
	}
	took[1].Name = "1 subscriber"
	l := line{Scenario: "a2a", Layer: "http", Fsync: "off"}
	l.Case, l.Unit, l.Sides = "commands of the store for a message", "commands", eachSide(took, "commands")
	b.add(l, growth, server.version)
	l.Case, l.Unit, l.Sides = "time until all have a message", "µs", took
	b.add(l, growth, server.version)

	memory := func(n int) contender {
		return contender{fmt.Sprintf("%d subscribers", n), func(ctx context.Context) (sample, error) {
			return e.memory(ctx, n)
		}}
	}
	l.Case, l.Unit = "heap for a subscriber", "bytes"
	if l.Sides, err = b.inTurn(ctx, "a2a memory", "bytes", memory(many), memory(many/b.pick(10, 2))); err != nil {
		return err
	}
	b.add(l, growth, server.version)
	return nil
}

// eachSide makes sides of another figure of the same rounds.
func eachSide(sides []side, figure string) (others []side) {
	for _, s := range sides {
		var samples []sample
		for _, r := range s.Rounds {
			samples = append(samples, sample{Value: r.More[figure]})
		}
		others = append(others, sideOf(s.Name, samples))
	}
	return others
}

// endpointSide is the endpoint of a pool on a loopback port of this process.
type endpointSide struct {
	redis  *redisServer
	engine *orchestrator.Engine
	sealer *seal.Sealer
	at     string // host and port
	key    string // of a client
	idle   int    // goroutines before the first stream
	close  func()
}

func openEndpoint(ctx context.Context, r *redisServer, store *orchestrator.Store,
	sealer *seal.Sealer) (*endpointSide, error) {
	engine, log := store.Engine("default"), slog.New(slog.DiscardHandler)
	made, err := engine.CreateKey(ctx, asBench, picket.KeyRequest{Name: "client", Scopes: []picket.Scope{
		picket.ScopeClient}, Client: &picket.ClientLimits{Roles: []string{"builder"}}})
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	control, err := api.New(api.Config{Engine: store.Engine, Engines: store.Engines, Log: log})
	if err != nil {
		return nil, err
	}
	endpoints, err := a2a.New(a2a.Config{
		PublicURL: "http://" + l.Addr().String(),
		Pools:     []a2a.Pool{{Role: "builder", Task: picket.TaskSpec{Review: picket.ReviewByNone}, MaxQueue: 100}},
		Admit:     control.Admit,
		Engine:    store.Engine,
		Leases:    sealer,
		Log:       log,
	})
	if err != nil {
		return nil, err
	}
	e := web.New(log)
	endpoints.Mount(e)
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(serving, l, e, log) }()
	return &endpointSide{redis: r, engine: engine, sealer: sealer, at: l.Addr().String(), key: made.Key.Reveal(),
		close: func() {
			stop()
			<-ended
		}}, nil
}

// updates has n subscribers follow a task, and returns how long a message takes to all of them.
func (e *endpointSide) updates(ctx context.Context, n, messages int) (sample, error) {
	held, all, err := e.open(ctx, n)
	if err != nil {
		return sample{}, err
	}
	defer all.close()
	told := newTold(n, messages)
	for _, s := range all.streams {
		all.reading.Go(func() { told.follow(s) })
	}
	runtime.GC() // not during the messages
	before, err := e.redis.counts(ctx)
	if err != nil {
		return sample{}, err
	}
	var took times
	for i := range messages {
		began := time.Now()
		if _, err := e.engine.EmitStatus(ctx, held, "", picket.StatusMessage{Message: told.text(i)}); err != nil {
			return sample{}, fmt.Errorf("emit: %w", err)
		}
		if err := told.await(ctx, i); err != nil {
			return sample{}, err
		}
		took.add(time.Since(began))
	}
	after, err := e.redis.counts(ctx)
	if err != nil {
		return sample{}, err
	}
	if _, err := e.engine.Complete(ctx, held, picket.Completion{Output: output}); err != nil {
		return sample{}, fmt.Errorf("complete: %w", err)
	}
	all.reading.Wait() // streams end with their task
	commands := 0.0
	for name, c := range after {
		if name != "info" {
			commands += float64(c.calls - before[name].calls)
		}
	}
	return sample{Value: took.at(0.5), More: map[string]float64{
		"commands": round(commands/float64(messages), 2),
		"p99":      took.at(0.99),
	}}, told.check()
}

// memory returns what each of n subscribers takes in this process.
func (e *endpointSide) memory(ctx context.Context, n int) (sample, error) {
	e.settle()
	before, _ := usedMemory()
	held, all, err := e.open(ctx, n)
	if err != nil {
		return sample{}, err
	}
	after, stacks := usedMemory()
	all.close()
	if _, err := e.engine.Complete(ctx, held, picket.Completion{Output: output}); err != nil {
		return sample{}, fmt.Errorf("complete: %w", err)
	}
	return sample{Value: round((after-before)/float64(n), 0), More: map[string]float64{
		"stacks": round(stacks/float64(n), 0), // also those of all others, and what the runtime keeps for the next ones
	}}, nil
}

// settle waits until the server has ended the streams of earlier rounds, for 5 s at most: what they leave would be
// taken for less memory of the next ones.
func (e *endpointSide) settle() {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > e.idle && time.Now().Before(late); {
		<-tick.C
	}
}

// usedMemory is heap and stacks after collections, in bytes.
func usedMemory() (heap, stacks float64) {
	runtime.GC()
	runtime.GC() // what the first one has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc), float64(m.StackInuse)
}

// streams are subscribers of a task.
type streams struct {
	streams []*stream
	reading sync.WaitGroup
}

func (s *streams) close() {
	for _, one := range s.streams {
		one.conn.Close()
	}
	s.reading.Wait()
}

// stream is one subscriber, on a connection of its own.
type stream struct {
	conn  net.Conn
	lines *bufio.Scanner
}

// open leases a new task of the client and opens n streams of it. Each has had its first event.
func (e *endpointSide) open(ctx context.Context, n int) (held picket.LeaseCredential, all *streams, err error) {
	id, err := e.submit(ctx)
	if err != nil {
		return held, nil, err
	}
	leases, err := e.engine.Acquire(ctx, asBench, picket.AcquireRequest{AgentID: "builder-1", Role: "builder"})
	if err != nil {
		return held, nil, fmt.Errorf("acquire: %w", err)
	}
	for _, lease := range leases {
		if held, err = e.sealer.OpenLeaseToken(lease.LeaseToken.Reveal()); err != nil {
			return held, nil, err
		}
	}
	if held.TaskID != id {
		return held, nil, fmt.Errorf("leased %q, want %s", held.TaskID, id)
	}
	all = &streams{}
	for range n {
		s, err := e.subscribe(ctx, id)
		if err != nil {
			all.close()
			return held, nil, err
		}
		all.streams = append(all.streams, s)
	}
	return held, all, nil
}

func (e *endpointSide) request(ctx context.Context, path, body string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+e.at+"/agents/builder/a2a/"+path,
		strings.NewReader(body))
	if err == nil {
		r.Header.Set("X-API-Key", e.key)
		r.Header.Set("Content-Type", "application/json")
	}
	return r, err
}

// submit makes a task as a client does.
func (e *endpointSide) submit(ctx context.Context) (id string, err error) {
	r, err := e.request(ctx, "tasks", `{"title":"watch me"}`)
	if err != nil {
		return "", err
	}
	r.Close = true
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var made struct {
		TaskID string `json:"taskId"`
	}
	if err := json.NewDecoder(res.Body).Decode(&made); err != nil || made.TaskID == "" {
		return "", errors.Join(err, fmt.Errorf("submit: status %d", res.StatusCode))
	}
	return made.TaskID, nil
}

// subscribe opens a stream and reads its first event. The client side is as small as it can be, because it is measured
// with the server.
func (e *endpointSide) subscribe(ctx context.Context, id string) (s *stream, err error) {
	r, err := e.request(ctx, "tasks/"+id+":subscribe", "")
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", e.at)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	if err := r.Write(conn); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("subscribe: status %d", res.StatusCode)
	}
	s = &stream{conn: conn, lines: bufio.NewScanner(res.Body)}
	s.lines.Buffer(make([]byte, 0, 1024), 1<<20)
	if !s.next() {
		return nil, fmt.Errorf("a stream without an event: %w", s.lines.Err())
	}
	return s, nil
}

// next reads until the data of the next event.
func (s *stream) next() bool {
	for s.lines.Scan() {
		if bytes.HasPrefix(s.lines.Bytes(), []byte("data:")) {
			return true
		}
	}
	return false
}

// told counts who has which message.
type told struct {
	subscribers int
	left        []atomic.Int64  // subscribers that have not got a message
	all         []chan struct{} // closed when nobody is left
	mu          sync.Mutex
	wrong       error
}

func newTold(subscribers, messages int) *told {
	t := &told{subscribers: subscribers, left: make([]atomic.Int64, messages), all: make([]chan struct{}, messages)}
	for i := range messages {
		t.left[i].Store(int64(subscribers))
		t.all[i] = make(chan struct{})
	}
	return t
}

// text is a message that no other one contains.
func (t *told) text(i int) string { return fmt.Sprintf("message %d of %d.", i+1, len(t.left)) }

// follow reads a stream to its end. Each message must come once, in order.
func (t *told) follow(s *stream) {
	got := 0
	for s.next() {
		if !bytes.Contains(s.lines.Bytes(), []byte(`"message `)) {
			continue
		}
		if got == len(t.left) || !bytes.Contains(s.lines.Bytes(), []byte(t.text(got))) {
			t.fail(fmt.Errorf("after %d messages came %s", got, s.lines.Bytes()))
			return
		}
		if t.left[got].Add(-1) == 0 {
			close(t.all[got])
		}
		got++
	}
	if got != len(t.left) {
		t.fail(fmt.Errorf("a stream has ended after %d of %d messages", got, len(t.left)))
	}
}

func (t *told) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrong = errors.Join(t.wrong, err)
}

// await waits until every subscriber has a message.
func (t *told) await(ctx context.Context, i int) error {
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	select {
	case <-t.all[i]:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return errors.Join(fmt.Errorf("%d of %d subscribers have no message %d", t.left[i].Load(), t.subscribers, i+1),
			t.check())
	}
}

// check returns what went wrong.
func (t *told) check() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wrong
}
