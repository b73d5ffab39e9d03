package rfc16

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
)

// maxTries is how often a rule is tried when the machine was too slow for it, each
// time with thresholds twice as long.
const maxTries = 4

func (c Config) slower(try int) Config {
	for _, seconds := range []*int{&c.Interval, &c.Unhealthy, &c.Dead, &c.DrainTimeout} {
		*seconds <<= try - 1
	}
	return c
}

// cleanUpTimeout bounds taking away what a rule made.
const cleanUpTimeout = time.Minute

// runAll runs the rules side by side and answers in their order.
func (s *suite) runAll(ctx context.Context, rules []Rule) []Result {
	results := make([]Result, len(rules))
	places := make(chan struct{}, s.cfg.Parallel)
	var wg sync.WaitGroup
	done := 0
	for i, r := range rules {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			results[i] = s.runRule(ctx, r)
			s.mu.Lock()
			defer s.mu.Unlock()
			done++
			if s.cfg.Progress != nil {
				s.cfg.Progress(done, len(rules), results[i])
			}
		})
	}
	wg.Wait()
	return results
}

// runRule tries a rule until there is a verdict.
func (s *suite) runRule(ctx context.Context, r Rule) Result {
	began := time.Now()
	out := Result{Section: r.Section, ID: r.ID, Text: r.Text, Settled: r.Needs&Settled != 0}
	if why := s.missing(r); why != "" {
		out.Outcome, out.Why = NotRun, why
		return out
	}
	for try := 1; try <= maxTries; try++ {
		out.tooSlow, out.Why, out.Outcome = false, "", ""
		s.attempt(ctx, r, try, &out)
		if !out.tooSlow || ctx.Err() != nil {
			break
		}
	}
	out.Millis = time.Since(began).Milliseconds()
	return out
}

// missing says why a rule cannot be run; empty when it can.
func (s *suite) missing(r Rule) string {
	if r.Check == nil {
		return r.Why
	}
	for _, n := range needNames {
		if r.Needs&n.need != 0 && s.available&n.need == 0 {
			return s.why[n.need]
		}
	}
	return ""
}

// attempt runs the check on a goroutine of its own, which a missed expectation
// ends.
func (s *suite) attempt(ctx context.Context, r Rule, try int, out *Result) {
	prefix := s.prefix + strings.ReplaceAll(strings.ToLower(r.Section), ".", "-") + "-" + r.ID + "-"
	if try > 1 {
		prefix += fmt.Sprintf("%d-", try)
	}
	t := &Trial{s: s, nth: try, cfg: s.cfg.slower(try), ctx: ctx, prefix: prefix, result: out}
	ended := make(chan any)
	go func() {
		defer func() { ended <- recover() }()
		if r.Needs&Events != 0 {
			t.markLog()
		}
		r.Check(t)
		out.Outcome = Passed
	}()
	if fault := <-ended; fault != nil {
		out.Outcome, out.Expected, out.Got = Failed, "an answer that can be judged", fmt.Sprint(fault)
	}
	if out.Outcome == "" {
		out.Outcome, out.Expected, out.Got = Failed, "a verdict", "none: the rule ended early"
	}
	s.cleanUp(ctx, t)
}

func (s *suite) cleanUp(ctx context.Context, t *Trial) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	left := t.clean(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = append(s.left, left...)
}

// sharedScenario is something that happens once and is looked at by several rules.
type sharedScenario struct {
	ended chan struct{}
	trial *Trial
	value any
}

// runShared runs a story, or waits for its end when another rule runs it. Its
// failure is that of every rule that looks at it; when this machine was too slow
// for it, they are tried again with the next telling.
func runShared[T any](t *Trial, name string, happen func(*Trial) T) T {
	name = fmt.Sprintf("%s-%d", name, t.nth)
	t.s.mu.Lock()
	st, known := t.s.scenarios[name]
	if !known {
		st = &sharedScenario{
			ended: make(chan struct{}),
			trial: &Trial{
				s:      t.s,
				nth:    t.nth,
				cfg:    t.cfg,
				ctx:    t.ctx,
				prefix: t.s.prefix + name + "-",
				result: &Result{},
			},
		}
		t.s.scenarios[name] = st
	}
	t.s.mu.Unlock()
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
	t.last = st.trial.last
	return st.value.(T)
}

// cleanUpScenarios takes away what the stories made.
func (s *suite) cleanUpScenarios(ctx context.Context) {
	for _, st := range s.scenarios {
		s.cleanUp(ctx, st.trial)
	}
}
