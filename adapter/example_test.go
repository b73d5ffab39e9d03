package adapter_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/process"
)

// A whole worker: it leases tasks and runs a command for each, until its
// context is cancelled.
func ExampleAdapter_Run() {
	server := adaptertest.New() // in life: picket up
	server.Queue(adaptertest.Task{Title: "greet", OnExit: picket.OnExitComplete})
	state, _ := os.MkdirTemp("", "picket")
	defer os.RemoveAll(state)

	ctx, drain := context.WithCancel(context.Background())
	worker, err := adapter.New(adapter.Config{
		BaseURL: server.URL, Key: adaptertest.Key, HTTP: server.HTTPClient(),
		Command:  []string{"sh", "-c", "echo hello, run $PICKET_FENCING_TOKEN"},
		StateDir: state,
		Stdout:   os.Stdout,
		OnEvent: func(e adapter.Event) {
			if e.Kind == adapter.EventEnded {
				fmt.Println(e.Result.Ending, e.Result.State, *e.Result.Exit.Code)
				drain() // one task is enough here
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(worker.Run(ctx))
	// Output:
	// hello, run 1
	// completed review 0
	// <nil>
}

// One lease, acquired by other means. The result says how it ended.
func ExampleAdapter_RunLease() {
	server := adaptertest.New()
	lease := server.Grant(adaptertest.Task{})
	state, _ := os.MkdirTemp("", "picket")
	defer os.RemoveAll(state)

	worker, err := adapter.New(adapter.Config{
		BaseURL: server.URL, HTTP: server.HTTPClient(), StateDir: state,
		Command: []string{"sh", "-c", "echo no such luck >&2; exit 3"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := worker.RunLease(context.Background(), lease)
	fmt.Println(result.Ending, result.Exit.Class, *result.Exit.Code, err)
	fmt.Printf("task: %s; last words: %s", result.State, result.Exit.Detail)
	// Output:
	// released crash 3 <nil>
	// task: handoff; last words: no such luck
}

// inProcess runs a function as the agent instead of a program.
type inProcess func(ctx context.Context, job process.Job) int

func (agent inProcess) Launch(ctx context.Context, job process.Job) (process.Process, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &goroutine{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.code = agent(ctx, job)
	}()
	return p, nil
}

type goroutine struct {
	cancel context.CancelFunc
	done   chan struct{}
	code   int
}

func (p *goroutine) PID() int              { return 0 }
func (p *goroutine) Done() <-chan struct{} { return p.done }
func (p *goroutine) Exit() process.Exited  { return process.Exited{Code: p.code} }
func (p *goroutine) Terminate()            { p.cancel() }
func (p *goroutine) Kill()                 { p.cancel() }
func (p *goroutine) Containment() string   { return "" }

// Agents need not be programs: a Launcher starts whatever runs for a lease.
func Example_launcher() {
	server := adaptertest.New()
	lease := server.Grant(adaptertest.Task{Title: "add"})
	state, _ := os.MkdirTemp("", "picket")
	defer os.RemoveAll(state)

	worker, err := adapter.New(adapter.Config{
		BaseURL: server.URL, HTTP: server.HTTPClient(), StateDir: state,
		Launcher: inProcess(func(ctx context.Context, job process.Job) int {
			proxy := adapter.NewProxy(job.Lease, "", server.HTTPClient())
			if _, err := proxy.Complete(ctx, picket.RawJSON("5"), "2 + 3"); err != nil {
				return 1
			}
			return 0
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := worker.RunLease(context.Background(), lease)
	view := server.View(lease.TaskID)
	fmt.Println(result.Ending, view.State, string(view.Output), err)
	// Output: completed review 5 <nil>
}

// What an agent does with its lease. A refusal that is Fenced means: stop.
func ExampleProxy() {
	server := adaptertest.New()
	lease := server.Grant(adaptertest.Task{})
	proxy := adapter.NewProxy(lease, "", server.HTTPClient()) // in life: from the environment
	ctx := context.Background()

	reported, err := proxy.Report(ctx, picket.Progress{
		Summary:   "read the code",
		Attempted: []picket.Attempted{{Action: "ran the tests", Outcome: "two fail"}},
		NextStep:  "fix the first",
	})
	fmt.Println(reported.Seq, reported.Pinned, err)

	server.Supersede(lease.TaskID) // the lease was lost and granted to another
	_, err = proxy.Complete(ctx, picket.RawJSON(`"done"`), "")
	fmt.Println(err, picket.CodeOf(err).Fenced())
	var refusal *picket.Error
	if errors.As(err, &refusal) {
		fmt.Println(refusal.Code, "->", refusal.Remedy)
	}
	// Output:
	// 1 true <nil>
	// token 1 was superseded true
	// stale_fence -> Stop writing and exit.
}

// A holder that is not an adapter renews its lease itself, well before the window is
// over. A renewal never revives a lease that has ended.
func ExampleProxy_Renew() {
	server := adaptertest.New()
	lease := server.Grant(adaptertest.Task{Window: 30 * time.Second})
	proxy := adapter.NewProxy(lease, "", server.HTTPClient())
	ctx := context.Background()

	renewed, err := proxy.Renew(ctx)
	fmt.Println(time.Duration(renewed.LeaseTTLMs)*time.Millisecond, err)

	server.Expire(lease.TaskID)
	_, err = proxy.Renew(ctx)
	fmt.Println("lost:", picket.CodeOf(err).Fenced())
	// Output:
	// 30s <nil>
	// lost: true
}

// Watch waits for a change of the lease, so that its holder learns of the end at once and
// not with its next renewal.
func ExampleProxy_Watch() {
	server := adaptertest.New()
	lease := server.Grant(adaptertest.Task{})
	proxy := adapter.NewProxy(lease, "", server.HTTPClient())
	ctx := context.Background()

	_, changed, err := proxy.Watch(ctx, 0) // does not wait
	fmt.Println(changed, err)

	server.Cancel(lease.TaskID)
	watch, changed, err := proxy.Watch(ctx, 50*time.Second)
	fmt.Println(changed, watch.State, err)
	// Output:
	// false <nil>
	// true cancelled <nil>
}

// The events of Config.OnEvent follow a run from its lease to its report.
func ExampleEvent() {
	server := adaptertest.New()
	lease := server.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	state, _ := os.MkdirTemp("", "picket")
	defer os.RemoveAll(state)

	worker, err := adapter.New(adapter.Config{
		BaseURL: server.URL, HTTP: server.HTTPClient(), StateDir: state,
		Command: []string{"true"},
		OnEvent: func(e adapter.Event) { fmt.Println(e.Kind) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = worker.RunLease(context.Background(), lease)
	// Output:
	// acquired
	// renewed
	// launched
	// ending
	// ended
}
