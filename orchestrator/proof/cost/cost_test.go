package cost

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A life is submit, grant and complete of a task that nobody reviews. The bounds are what is
// reached today, rounded up: a change that makes a life dearer has to raise one on purpose.
const (
	mostCallsAlone       = 52        // calls of redis.call a life, one caller
	mostCallsTogether    = 12        // 32 callers, in batches of about 16
	mostInstructionsLife = 1_500_000 // of the Redis server
)

// mostCallsOfVerb are those of one call of a verb that is sent alone, rounded up in the same way.
var mostCallsOfVerb = map[string]float64{"submit": 13, "grant": 18, "renew": 8, "report": 14, "complete": 16}

// worker takes tasks through their lives.
type worker struct {
	*orchestrator.Engine
	sealer *seal.Sealer
}

var input = picket.RawJSON(`{"text":"` + strings.Repeat("x", 1000) + `"}`)

func (w worker) live(ctx context.Context) error {
	spec := picket.TaskSpec{Title: "life", Input: input, Review: picket.ReviewByNone}
	if _, err := w.Submit(ctx, kit.Operator, spec); err != nil {
		return err
	}
	leases, err := w.Acquire(ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1"})
	if err != nil || len(leases) != 1 {
		return fmt.Errorf("%d leases: %w", len(leases), err)
	}
	held, err := w.sealer.OpenLeaseToken(leases[0].LeaseToken.Reveal())
	if err != nil {
		return err
	}
	_, err = w.Complete(ctx, held, picket.Completion{Output: picket.RawJSON(`"done"`)})
	return err
}

// lives runs lives of so many callers at a time, n each.
func (w worker) lives(t *testing.T, width, n int) {
	t.Helper()
	var callers sync.WaitGroup
	for range width {
		callers.Go(func() {
			for range n {
				if err := w.live(t.Context()); err != nil {
					t.Errorf("a life: %v", err)
					return
				}
			}
		})
	}
	callers.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func open(t *testing.T, where redis.UniversalOptions) worker {
	t.Helper()
	store, err := orchestrator.Open(t.Context(), orchestrator.Config{Redis: where, Sealer: rig.Sealer(),
		Witness: t.TempDir(), Found: true, Log: slog.New(slog.DiscardHandler)})
	kit.OK(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return worker{store.Engine("default"), rig.Sealer()}
}

// notCalled are commands that scripts do not call, or that the measurement sends.
var notCalled = []string{"fcall", "function|load", "hello", "client|setinfo", "client|maint_notifications", "ping",
	"subscribe", "config|resetstat"}

// What a life calls, inside the functions, is counted by Redis. Callers of the same
// time share batches: two are under way at a time, so 32 callers make batches of about 16.
func TestCallsOfALifeReal(t *testing.T) {
	s := rig.Real(t)
	w := open(t, s.Redis)
	raw := redis.NewUniversalClient(&s.Redis)
	defer raw.Close()
	for width, most := range map[int]float64{1: mostCallsAlone, 32: mostCallsTogether} {
		w.lives(t, width, 20) // connections and counters begin
		kit.OK(t, raw.ConfigResetStat(t.Context()).Err())
		const n = 50
		w.lives(t, width, n)
		if calls := callsOf(t, raw, fmt.Sprintf("a life of %d callers", width), width*n); calls > most {
			t.Errorf("a life of %d callers makes %.2f calls, at most %.0f", width, calls, most)
		}
	}
}

// callsOf is how many commands the scripts have called since the counters were reset, for each of n times that
// something was done.
func callsOf(t *testing.T, raw redis.UniversalClient, what string, n int) (calls float64) {
	t.Helper()
	counts := commandCounts(t, raw)
	for _, command := range slices.Sorted(maps.Keys(counts)) {
		if !slices.Contains(notCalled, command) {
			calls += counts[command] / float64(n)
			t.Logf("%s: %s %.2f", what, command, counts[command]/float64(n))
		}
	}
	t.Logf("%s: %.2f calls", what, calls)
	return calls
}

// What one call of a verb calls, alone.
func TestCallsOfVerbsReal(t *testing.T) {
	s := rig.Real(t)
	w := open(t, s.Redis)
	raw := redis.NewUniversalClient(&s.Redis)
	defer raw.Close()
	w.lives(t, 1, 20) // connections and counters begin
	const n = 50
	var held []picket.LeaseCredential
	count := func(verb string, call func(i int) error) {
		kit.OK(t, raw.ConfigResetStat(t.Context()).Err())
		for i := range n {
			kit.OK(t, call(i))
		}
		if calls := callsOf(t, raw, verb, n); calls > mostCallsOfVerb[verb] {
			t.Errorf("%s makes %.2f calls, at most %.0f", verb, calls, mostCallsOfVerb[verb])
		}
	}
	count("submit", func(int) error {
		_, err := w.Submit(t.Context(), kit.Operator, picket.TaskSpec{Title: "life", Input: input})
		return err
	})
	count("grant", func(int) error {
		leases, err := w.Acquire(t.Context(), kit.Operator, picket.AcquireRequest{AgentID: "a1"})
		if err != nil {
			return err
		}
		h, err := w.sealer.OpenLeaseToken(leases[0].LeaseToken.Reveal())
		held = append(held, h)
		return err
	})
	count("renew", func(i int) error { _, err := w.Renew(t.Context(), held[i]); return err })
	count("report", func(i int) error {
		_, err := w.Report(t.Context(), held[i], "r1", picket.Progress{Summary: "half"})
		return err
	})
	count("complete", func(i int) error {
		_, err := w.Complete(t.Context(), held[i], picket.Completion{Output: picket.RawJSON(`"done"`)})
		return err
	})
}

var commandCount = regexp.MustCompile(`(?m)^cmdstat_(\S+?):calls=(\d+),`)

func commandCounts(t *testing.T, c redis.UniversalClient) map[string]float64 {
	t.Helper()
	text, err := c.Info(t.Context(), "commandstats").Result()
	kit.OK(t, err)
	counts := map[string]float64{}
	for _, m := range commandCount.FindAllStringSubmatch(text, -1) {
		counts[m[1]], err = strconv.ParseFloat(m[2], 64)
		kit.OK(t, err)
	}
	return counts
}

// Callgrind counts the instructions of a server. The difference of two runs is what lives
// cost, without the start.
func TestInstructionsOfALifeReal(t *testing.T) {
	rig.SkipShort(t)
	if _, err := exec.LookPath("valgrind"); err != nil {
		t.Skip("valgrind is not installed")
	}
	const few, many = 1, 11 // lives of each of 32 callers
	life := (instructions(t, many) - instructions(t, few)) / (32 * (many - few))
	t.Logf("%d instructions a life", life)
	if life > mostInstructionsLife {
		t.Errorf("a life takes %d instructions of Redis, at most %d", life, mostInstructionsLife)
	}
}

var collected = regexp.MustCompile(`Collected : (\d+)`)

// instructions are those of a server that is started for n lives of each of 32 callers.
func instructions(t *testing.T, n int) int {
	t.Helper()
	port := strconv.Itoa(rig.FreePort(t))
	cmd := exec.Command("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "redis-server",
		"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	var said bytes.Buffer
	cmd.Stderr = &said
	kit.OK(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	where := redis.UniversalOptions{Addrs: []string{net.JoinHostPort("127.0.0.1", port)}, ReadTimeout: time.Minute,
		DialTimeout: time.Minute}
	raw := redis.NewUniversalClient(&where)
	defer raw.Close()
	kit.WaitFor(t, "the server answers", func() bool { return raw.Ping(t.Context()).Err() == nil })
	open(t, where).lives(t, 32, n)
	_ = raw.ShutdownNoSave(t.Context()).Err() // the server ends without an answer
	<-ended
	m := collected.FindSubmatch(said.Bytes())
	if m == nil {
		t.Fatalf("callgrind said no count: %s", said.Bytes())
	}
	count, err := strconv.Atoi(string(m[1]))
	kit.OK(t, err)
	return count
}
