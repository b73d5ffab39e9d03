package adapter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/process"
)

// scriptedExecutor is a puppet beside which programs can be run: play says what they do.
type scriptedExecutor struct {
	*scriptedProcess
	play func(ctx context.Context, job process.ExecJob) (process.Exited, error)

	mu   sync.Mutex
	runs []string
}

func (b *scriptedExecutor) Exec(ctx context.Context, job process.ExecJob) (process.Exited, error) {
	b.mu.Lock()
	b.runs = append(b.runs, job.ID)
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, job.Timeout)
	defer cancel()
	return b.play(ctx, job)
}

func (b *scriptedExecutor) ran() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.runs, " ")
}

// executorLauncher launches agents that live on until they are killed.
type executorLauncher struct{ made chan *scriptedExecutor }

func (l executorLauncher) PlannedContainment() string { return picket.ContainmentGroup }
func (l executorLauncher) SupportsExec() bool         { return true }

func (l executorLauncher) Launch(_ context.Context, job process.Job) (process.Process, error) {
	p := &scriptedProcess{job: job, done: make(chan struct{})}
	p.closeDone = closeOnce(p.done)
	b := &scriptedExecutor{scriptedProcess: p}
	l.made <- b
	return b, nil
}

// startWithExecutor starts an adapter with one task and answers its agent.
func startWithExecutor(t *testing.T,
	play func(context.Context, process.ExecJob) (process.Exited, error),
) (s *adaptertest.Server, task string, b *scriptedExecutor, ended func() error) {
	t.Helper()
	made := make(chan *scriptedExecutor, 1)
	a, s := newScriptedAdapter(t, nil, func(c *Config) { c.Launcher = executorLauncher{made} })
	task = s.Queue(adaptertest.Task{})
	ctx, drain := context.WithCancel(t.Context())
	wait := runAsync(ctx, a)
	b = <-made
	b.play = play
	return s, task, b, func() error { drain(); b.endWith(process.Exited{}); return wait() }
}

func echo(_ context.Context, job process.ExecJob) (process.Exited, error) {
	in, _ := io.ReadAll(job.Stdin)
	fmt.Fprintf(job.Stdout, "%s: %s", strings.Join(job.Argv, " "), in)
	fmt.Fprint(job.Stderr, "warned")
	time.Sleep(time.Second)
	return process.Exited{Code: 3}, nil
}

func execOrderFor(id string) picket.ExecRequest {
	return picket.ExecRequest{
		CallID:         id,
		Argv:           []string{"make", "it"},
		Stdin:          "please",
		TimeoutSeconds: 60,
		TTLMs:          70_000,
	}
}

// awaitExecResult waits until the result of a call was taken.
func awaitExecResult(t *testing.T, s *adaptertest.Server, task, id string) picket.ExecResult {
	t.Helper()
	v, err := s.Await(withTimeout(t, 5*time.Minute), task, func(v adaptertest.View) bool {
		_, there := v.Runs[0].Execs[id]
		return there
	})
	if err != nil {
		t.Fatal(err)
	}
	return v.Runs[0].Execs[id]
}

func TestAProgramIsRunForACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, task, b, ended := startWithExecutor(t, echo)
		s.Exec(task, execOrderFor("c1"))
		r := awaitExecResult(t, s, task, "c1")
		if r.Code == nil || *r.Code != 3 || r.Signal != nil || r.Stdout != "make it: please" || r.Stderr != "warned" ||
			r.Truncated || r.DurationMs != 1000 {
			t.Errorf("the result is %+v", r)
		}
		if err := ended(); err != nil {
			t.Fatal(err)
		}
		v := s.View(task)
		if !v.Runs[0].Events[0].Exec || b.ran() != "c1" || v.Runs[0].ExecPosts != 1 {
			t.Errorf("announced %+v, ran %q, %d posts", v.Runs[0].Events[0], b.ran(), v.Runs[0].ExecPosts)
		}
	})
}

// An order is told by every renewal until there is a result, and again by the
// watch whose answer was lost: it is carried out once.
func TestAProgramIsRunOnce(t *testing.T) {
	for _, path := range []string{"/v1/lease/watch", "/v1/run/exec/"} {
		for _, kind := range []adaptertest.Fault{adaptertest.DropReply, adaptertest.DropRequest,
			adaptertest.Unavailable} {
			synctest.Test(t, func(t *testing.T) {
				s, task, b, ended := startWithExecutor(t,
					func(_ context.Context, job process.ExecJob) (process.Exited, error) {
						time.Sleep(20 * time.Second)
						return process.Exited{}, nil
					})
				s.Fail(path, kind, 3)
				s.Exec(task, execOrderFor("c1"))
				s.Exec(task, execOrderFor("c2"))
				for _, id := range []string{"c1", "c2"} {
					if r := awaitExecResult(t, s, task, id); r.Code == nil || *r.Code != 0 {
						t.Errorf("%s: the result is %+v", path, r)
					}
				}
				b.repeatOrder(s, task)
				if err := ended(); err != nil {
					t.Fatal(err)
				}
				if got := b.ran(); got != "c1 c2" && got != "c2 c1" {
					t.Errorf("%s, trouble %d: ran %q", path, kind, got)
				}
			})
		}
	}
}

// repeatOrder lets an order of before come once more, as in an answer that was
// long on its way.
func (b *scriptedExecutor) repeatOrder(s *adaptertest.Server, task string) {
	o := execOrderFor("c1")
	s.Command(task, picket.Command{Command: "exec", Exec: &o})
	time.Sleep(time.Minute)
}

// untilKilled is a program that goes on until it is killed.
func untilKilled(ctx context.Context, _ process.ExecJob) (process.Exited, error) {
	<-ctx.Done()
	return process.Exited{Code: 137, Signal: "SIGKILL"}, nil
}

func TestAProgramEndsWithItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, task, _, ended := startWithExecutor(t, untilKilled)
		s.Exec(task, execOrderFor("by-its-limit"))
		short := execOrderFor("by-the-call")
		short.TTLMs = 12_000
		s.Exec(task, short)
		late := execOrderFor("too-late")
		late.TTLMs = 1_500
		s.Exec(task, late)
		if r := awaitExecResult(t, s, task,
			"by-its-limit"); r.Signal == nil || *r.Signal != "SIGKILL" || r.Code != nil ||
			r.DurationMs != 60_000 || r.Stopped != "the command was stopped: more than 60 s" {
			t.Errorf("the result is %+v", r)
		}
		if r := awaitExecResult(t, s, task, "by-the-call"); r.Signal == nil || r.DurationMs < 9_000 ||
			r.DurationMs > 10_000 {
			t.Errorf("within the call's deadline the result is %+v", r)
		}
		if r := awaitExecResult(t, s, task, "too-late"); r.Failed == "" || r.Code != nil {
			t.Errorf("without time the result is %+v", r)
		}
		if err := ended(); err != nil {
			t.Fatal(err)
		}
	})
}

// A lease that ends takes its programs along, also where the agent may linger,
// and nothing more is started under it. The result is handed in all the same.
func TestAProgramEndsWithItsLease(t *testing.T) {
	for state, end := range map[string]func(s *adaptertest.Server, task string, b *scriptedExecutor){
		"cancelled": func(s *adaptertest.Server, task string, _ *scriptedExecutor) { s.Cancel(task) },
		"expired":   func(s *adaptertest.Server, task string, _ *scriptedExecutor) { s.Expire(task) },
		"completed": func(s *adaptertest.Server, _ string, b *scriptedExecutor) {
			if _, err := NewProxy(b.job.Lease, s.URL, s.HTTPClient()).
				Complete(context.Background(), picket.RawJSON(`1`), ""); err != nil {
				t.Error(err)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, task, b, ended := startWithExecutor(t, untilKilled)
			s.Exec(task, execOrderFor("c1"))
			synctest.Wait()
			end(s, task, b)
			if r := awaitExecResult(t, s, task, "c1"); r.Signal == nil || r.DurationMs > 5_000 {
				t.Errorf("%s: the result is %+v", state, r)
			}
			if err := ended(); err != nil {
				t.Error(err)
			}
			if b.ran() != "c1" {
				t.Errorf("%s: ran %q", state, b.ran())
			}
		})
	}
}

func TestAProgramIsToldItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := map[string]process.Exited{
			"c1": {Code: 137, Signal: "SIGKILL", LimitHit: "more than 64 processes"},
			"c2": {Code: 2, LimitHit: "more than 1 GiB of memory"},
			"c3": {Code: 137, Signal: "SIGKILL"},
		}
		s, task, _, ended := startWithExecutor(t,
			func(_ context.Context, job process.ExecJob) (process.Exited, error) { return ends[job.ID], nil })
		for id, want := range map[string]string{
			"c1": "the command was stopped: more than 64 processes",
			"c2": "the command was stopped: more than 1 GiB of memory",
			"c3": "",
		} {
			s.Exec(task, execOrderFor(id))
			if r := awaitExecResult(t, s, task, id); r.Stopped != want {
				t.Errorf("the result is %+v", r)
			}
		}
		if err := ended(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAProgramThatCannotBeStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, task, _, ended := startWithExecutor(t, func(context.Context, process.ExecJob) (process.Exited, error) {
			return process.Exited{}, errors.New("exec: \"make\": executable file not found in $PATH")
		})
		s.Exec(task, execOrderFor("c1"))
		if r := awaitExecResult(t, s, task, "c1"); r.Code != nil || !strings.Contains(r.Failed, "not found") {
			t.Errorf("the result is %+v", r)
		}
		if err := ended(); err != nil {
			t.Fatal(err)
		}
	})
}

// The agent's secret does not go into the store with a program's output.
func TestOutputOfAProgramHidesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token := make(chan string, 1)
		s, task, b, ended := startWithExecutor(t, func(_ context.Context, job process.ExecJob) (process.Exited, error) {
			fmt.Fprintf(job.Stdout, "PICKET_LEASE_TOKEN=%s\n", <-token)
			return process.Exited{}, nil
		})
		token <- b.job.Lease.AgentCredential().Reveal()
		s.Exec(task, execOrderFor("c1"))
		if r := awaitExecResult(t, s, task, "c1"); r.Stdout != "PICKET_LEASE_TOKEN=[redacted]\n" {
			t.Errorf("stdout is %q", r.Stdout)
		}
		if err := ended(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOutputKeepsBothEnds(t *testing.T) {
	const limit = picket.MaxExecOutput
	for _, c := range []struct {
		write []string
		want  string // empty: cut
	}{
		{[]string{"hello", " ", "you"}, "hello you"},
		{[]string{""}, ""},
		{[]string{strings.Repeat("a", limit)}, strings.Repeat("a", limit)},
		{[]string{"a pkl_secret b"}, "a [redacted] b"},
		{[]string{"bad \xff byte"}, "bad \uFFFD byte"},
	} {
		m := &headTailBuffer{}
		for _, w := range c.write {
			io.WriteString(m, w)
		}
		if got, cut := m.text("pkl_secret", limit); got != c.want || cut {
			t.Errorf("%.20q: got %.40q, cut %v", c.write, got, cut)
		}
	}
	for _, piece := range []int{1, 7, 1000, headTailSize, 3 * headTailSize} {
		m := &headTailBuffer{}
		var all strings.Builder
		for all.Len() < 5*headTailSize {
			p := strings.Repeat(string(rune('a'+all.Len()%26)), piece)
			all.WriteString(p)
			io.WriteString(m, p)
		}
		got, cut := m.text("", limit)
		head, tail, _ := strings.Cut(got, "\n[… about ")
		_, tail, _ = strings.Cut(tail, " …]\n")
		if !cut || len(got) > limit || !strings.HasPrefix(all.String(), head) ||
			!strings.HasSuffix(all.String(), tail) || len(head)+len(tail) < limit-100 {
			t.Errorf("pieces of %d: %d bytes, cut %v, beginning %d, end %d", piece, len(got), cut, len(head), len(tail))
		}
	}
	m := &headTailBuffer{} // every other byte is not text: it grows and is cut again
	io.WriteString(m, strings.Repeat("a\xff", limit/2))
	if got, cut := m.text("", limit); !cut || len(got) > limit {
		t.Errorf("%d bytes, cut %v", len(got), cut)
	}
}
