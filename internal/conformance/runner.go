package conformance

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
)

// MaxTries is how often a rule is tried when the machine was too slow for it.
const MaxTries = 4

// cleanUpTimeout bounds taking away what a rule made.
const cleanUpTimeout = time.Minute

// Case is a rule that is run.
type Case struct {
	Row
	// Missing says why the rule cannot be run; empty: Check is run.
	Missing string
	Check   func(*Trial)
}

// Runner runs the cases of a suite.
type Runner struct {
	Server   *Server
	Title    string // of the document
	Parallel int    // bounds the rules that run side by side
	// Progress is called for every result as it comes, one at a time. Defaults to nothing.
	Progress func(done, total int, r Result)

	mu        sync.Mutex
	left      []string
	scenarios map[string]*sharedScenario
}

// Run runs the cases, and takes away what they have made. The results are in the order of the cases. The error
// is that of ctx: the run was ended.
func (r *Runner) Run(ctx context.Context, cases []Case) (Report, error) {
	defer r.Server.HTTP.CloseIdleConnections()
	r.scenarios = map[string]*sharedScenario{}
	began := time.Now()
	report := Report{Title: r.Title, URL: r.Server.URL, Prefix: r.Server.Prefix,
		Started: began.UTC().Format(time.RFC3339)}
	report.Results = r.runAll(ctx, cases)
	for _, st := range r.scenarios {
		r.cleanUp(ctx, st.trial)
	}
	report.Left = append(r.left, r.Server.revoke(context.WithoutCancel(ctx))...)
	report.count()
	report.Millis = time.Since(began).Milliseconds()
	return report, ctx.Err()
}

// runAll runs the cases side by side and answers in their order.
func (r *Runner) runAll(ctx context.Context, cases []Case) []Result {
	results := make([]Result, len(cases))
	places := make(chan struct{}, r.Parallel)
	var wg sync.WaitGroup
	done := 0
	for i, c := range cases {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			results[i] = r.runCase(ctx, c)
			r.mu.Lock()
			defer r.mu.Unlock()
			done++
			if r.Progress != nil {
				r.Progress(done, len(cases), results[i])
			}
		})
	}
	wg.Wait()
	return results
}

// runCase tries a rule until there is a verdict.
func (r *Runner) runCase(ctx context.Context, c Case) Result {
	began := time.Now()
	out := Result{Section: c.Section, ID: c.ID, Text: c.Text, Settled: c.Settled()}
	if c.Missing != "" {
		out.Outcome, out.Why = NotRun, c.Missing
		return out
	}
	for try := 1; try <= MaxTries; try++ {
		out.tooSlow, out.Why, out.Outcome = false, "", ""
		r.attempt(ctx, c, try, &out)
		if !out.tooSlow || ctx.Err() != nil {
			break
		}
	}
	out.Millis = time.Since(began).Milliseconds()
	return out
}

// attempt runs the check on a goroutine of its own, which a missed expectation
// ends.
func (r *Runner) attempt(ctx context.Context, c Case, try int, out *Result) {
	prefix := r.Server.Prefix + strings.ReplaceAll(strings.ToLower(c.Section), ".", "-") + "-" + c.ID + "-"
	if try > 1 {
		prefix += fmt.Sprintf("%d-", try)
	}
	t := &Trial{Server: r.Server, Nth: try, Ctx: ctx, Prefix: prefix, runner: r, result: out}
	ended := make(chan any)
	go func() {
		defer func() { ended <- recover() }()
		c.Check(t)
		out.Outcome = Passed
	}()
	if fault := <-ended; fault != nil {
		out.Outcome, out.Expected, out.Got = Failed, "an answer that can be judged", fmt.Sprint(fault)
	}
	if out.Outcome == "" {
		out.Outcome, out.Expected, out.Got = Failed, "a verdict", "none: the rule ended early"
	}
	r.cleanUp(ctx, t)
}

func (r *Runner) cleanUp(ctx context.Context, t *Trial) {
	if t.Clean == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	t.Ctx = ctx
	left := t.Clean(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = append(r.left, left...)
}

// sharedScenario is something that happens once and is looked at by several rules.
type sharedScenario struct {
	ended chan struct{}
	trial *Trial
	value any
}

// Shared runs a story, or waits for its end when another rule runs it. Its
// failure is that of every rule that looks at it; when this machine was too slow
// for it, they are tried again with the next telling.
func Shared[T any](t *Trial, name string, happen func(*Trial) T) T {
	name = fmt.Sprintf("%s-%d", name, t.Nth)
	r := t.runner
	r.mu.Lock()
	st, known := r.scenarios[name]
	if !known {
		st = &sharedScenario{
			ended: make(chan struct{}),
			trial: &Trial{Server: r.Server, Nth: t.Nth, Ctx: t.Ctx, Prefix: r.Server.Prefix + name + "-", runner: r,
				result: &Result{}},
		}
		r.scenarios[name] = st
	}
	r.mu.Unlock()
	if !known {
		go func() {
			defer close(st.ended)
			st.value = happen(st.trial)
			st.trial.result.Outcome = Passed
		}()
	}
	<-st.ended
	if r := st.trial.result; r.Outcome != Passed {
		own := *t.result
		*t.result = *r
		t.result.Section, t.result.ID, t.result.Text, t.result.Settled = own.Section, own.ID, own.Text, own.Settled
		runtime.Goexit()
	}
	t.Last = st.trial.Last
	return st.value.(T)
}
