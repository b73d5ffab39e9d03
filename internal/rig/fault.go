package rig

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// FaultProxy is a proxy between a client and a store that loses, holds, swallows
// and repeats single requests and replies. It reads the protocol, so it hits
// exactly one command, also in the middle of a pipeline:
//
//	through, faults := rig.Real(t).Faulty(t)
//	// ... open the store under test with through.Redis ...
//	lost := faults.Next(rig.SwallowReply, rig.MatchWords("FCALL", function))
//	err := call()    // the store did it, the caller does not know
//	<-lost.Over()    // the fault really struck
//
// A reply that comes too late, after its caller has given up and repeated:
//
//	late := faults.Next(rig.HoldReply, rig.MatchWords("FCALL", function))
//	go func() { <-late.Answered(); late.GiveUp() }()
//	err := call()    // times out at once, without waiting for a clock
//	err = call()     // the repeat, on another connection
//	late.Release()   // now the first reply goes out
//	<-late.Over()
//
// Plan does the same for random tests, Cut and Heal for whole links, Listen
// for clients in other processes. Inside a synctest bubble use Memory().Faulty.
//
// What stands before a struck command in its pipeline has been answered when
// it is struck. Drop and SwallowReply end the connection, so what stands after
// it is not done; a client may call the whole batch lost, also what was
// answered: go-redis does. Connections that subscribe, monitor or replicate are
// passed through from then on: the command itself can be dropped or held, and
// Cut ends them as well.
type FaultProxy struct {
	store Store // what stands behind

	mu       sync.Mutex
	plan     func(command []string) *Fault
	rules    []rule
	links    map[*link]struct{}
	cut      bool
	closed   bool
	counts   FaultCounts
	listener net.Listener
	running  sync.WaitGroup
}

// FaultCounts says what a proxy has done since it was made.
type FaultCounts struct {
	Requests int               // commands read from clients
	Struck   map[FaultKind]int // commands that a fault was done to
	Refused  int               // connections refused while cut
}

type rule struct {
	match Match
	fault *Fault
}

// Match chooses commands by their words.
type Match func(command []string) bool

// MatchWords matches commands that begin with these words, in any case.
func MatchWords(words ...string) Match {
	return func(command []string) bool {
		return len(command) >= len(words) && slices.EqualFunc(command[:len(words)], words, strings.EqualFold)
	}
}

// CallsVerb reports whether a command calls a verb of a store: a function, or a script where
// the store knows no functions.
func CallsVerb(command []string) bool {
	if len(command) == 0 {
		return false
	}
	name := strings.ToUpper(command[0])
	return name == "FCALL" || name == "EVALSHA" || name == "EVAL"
}

// Faulty puts a proxy before the store: the Store returned dials through it.
// The proxy ends with the test, or with Close.
func (s Store) Faulty(tb testing.TB) (Store, *FaultProxy) {
	f := &FaultProxy{store: s, links: map[*link]struct{}{}, counts: FaultCounts{Struck: map[FaultKind]int{}}}
	tb.Cleanup(f.Close)
	through := s
	through.Redis.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return f.dial(ctx) }
	return through, f
}

// Next does a fault to the next command that matches, and to that one only.
// Faults that match the same command strike one after the other, in the order
// they were asked for.
func (f *FaultProxy) Next(kind FaultKind, match Match) *Fault {
	fault := NewFault(kind)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, rule{match, fault})
	return fault
}

// Plan asks for a fault for every command that no Next has matched; nil lets
// the command pass. It is called under a lock and must not wait. A nil plan
// ends it.
func (f *FaultProxy) Plan(plan func(command []string) *Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = plan
}

// Counts returns what was done so far.
func (f *FaultProxy) Counts() FaultCounts {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.counts
	c.Struck = map[FaultKind]int{}
	for k, n := range f.counts.Struck {
		c.Struck[k] = n
	}
	return c
}

// Cut closes every connection and refuses new ones until Heal.
func (f *FaultProxy) Cut() {
	f.mu.Lock()
	f.cut = true
	links := f.take()
	f.mu.Unlock()
	for _, l := range links {
		l.close()
	}
}

// Heal ends a cut.
func (f *FaultProxy) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut = f.closed
}

// Close cuts permanently and waits until nothing of the proxy runs any more. It
// may be called more than once.
func (f *FaultProxy) Close() {
	f.mu.Lock()
	f.closed = true
	if f.listener != nil {
		_ = f.listener.Close()
	}
	f.mu.Unlock()
	f.Cut()
	f.running.Wait()
}

// Listen opens a loopback address of the proxy, for clients in processes of
// their own. GiveUp has no effect on them.
func (f *FaultProxy) Listen(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	f.mu.Lock()
	f.listener = l
	f.mu.Unlock()
	f.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if f.join(context.Background(), c, nil) != nil {
				_ = c.Close()
			}
		}
	})
	return l.Addr().String()
}

// take empties the list of connections; f.mu is held.
func (f *FaultProxy) take() []*link {
	var out []*link
	for l := range f.links {
		out = append(out, l)
	}
	clear(f.links)
	return out
}

// pick finds the fault for a command, nil for none.
func (f *FaultProxy) pick(command []string) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Requests++
	var fault *Fault
	if i := slices.IndexFunc(f.rules, func(r rule) bool { return r.match(command) }); i >= 0 {
		fault = f.rules[i].fault
		f.rules = slices.Delete(f.rules, i, i+1)
	} else if f.plan != nil {
		fault = f.plan(command)
	}
	if fault != nil {
		f.counts.Struck[fault.kind]++
	}
	return fault
}

// dial connects a client in this process.
func (f *FaultProxy) dial(ctx context.Context) (net.Conn, error) {
	client, ours, err := connPair(f.store.Memory)
	if err != nil {
		return nil, err
	}
	c := &timeoutConn{Conn: client}
	if err := f.join(ctx, ours, c.giveUp); err != nil {
		_ = client.Close()
		_ = ours.Close()
		return nil, err
	}
	if s, ok := client.(syscall.Conn); ok {
		return &timeoutSocketConn{c, s}, nil
	}
	return c, nil
}

// join connects a client's connection with one of its own to the store.
func (f *FaultProxy) join(ctx context.Context, client net.Conn, giveUp func()) error {
	refused := &net.OpError{Op: "dial", Net: "proxy", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	f.mu.Lock()
	if f.cut {
		f.counts.Refused++
		f.mu.Unlock()
		return refused
	}
	f.mu.Unlock()
	store, err := f.store.Redis.Dialer(ctx, "", "")
	if err != nil {
		return err
	}
	l := newLink(f, client, store, giveUp)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut { // meanwhile
		_ = store.Close()
		f.counts.Refused++
		return refused
	}
	f.links[l] = struct{}{}
	f.running.Go(l.requests)
	f.running.Go(l.replies)
	return nil
}
