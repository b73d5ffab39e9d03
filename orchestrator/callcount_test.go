package orchestrator_test

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// One transition is one call: a life of seven transitions costs seven FCALL
// and nothing else, by the server's own count and by what goes over the wire.
func TestCallsPerLifeReal(t *testing.T) {
	for _, noBatch := range []bool{false, true} {
		t.Run(fmt.Sprintf("NoBatch=%v", noBatch), func(t *testing.T) {
			s := rig.Real(t)
			wire := &rig.CommandCounter{}
			watched := s.Redis
			watched.Dialer = wire.Dialer(s.Redis.Dialer)
			store, err := orchestrator.Open(t.Context(),
				orchestrator.Config{Redis: watched, Sealer: rig.Sealer(), NoBatch: noBatch,
					Witness: t.TempDir(), Found: true, Log: slog.New(slog.DiscardHandler)})
			kit.OK(t, err)
			defer store.Close()
			raw := rig.Hashes(redis.NewUniversalClient(&s.Redis))
			defer raw.Close()
			e := store.Engine("default")

			runOneLife(t, e) // the first one loads the library
			before, sent := commandCalls(t, raw), wire.Take()
			if sent["fcall"] == 0 {
				t.Fatalf("nothing was seen on the wire: %v", sent)
			}
			const lives = 5
			transitions := 0
			for range lives {
				transitions += runOneLife(t, e)
			}
			after, sent := commandCalls(t, raw), wire.Take()
			if got := after["fcall"] - before["fcall"]; got != transitions {
				t.Errorf("the server ran FCALL %d times for %d transitions", got, transitions)
			}
			if got := after["eval"] - before["eval"]; got != 0 {
				t.Errorf("the server ran EVAL %d times", got)
			}
			for _, command := range slices.Sorted(maps.Keys(sent)) {
				n := sent[command]
				switch command {
				case "fcall":
					if n != transitions {
						t.Errorf("%d FCALL were sent for %d transitions", n, transitions)
					}
				case "hello", "client": // a connection is set up
				default:
					t.Errorf("%s was sent %d times", command, n)
				}
			}
			t.Logf("%d lives, %d transitions, on the wire %v", lives, transitions, sent)
		})
	}
}

// runOneLife takes a task from submission to approval and returns the number of
// transitions that took.
func runOneLife(t *testing.T, e *orchestrator.Engine) int {
	t.Helper()
	ctx, sealer, n := t.Context(), rig.Sealer(), 0
	did := func(err error) {
		t.Helper()
		kit.OK(t, err)
		n++
	}
	task, err := e.Submit(ctx, kit.Operator, picket.TaskSpec{Title: "a task", Input: picket.RawJSON(`{"n":1}`)})
	did(err)
	leases, err := e.Acquire(ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1"})
	did(err)
	h, err := sealer.OpenLeaseToken(leases[0].LeaseToken.Reveal())
	kit.OK(t, err)
	_, err = e.Renew(ctx, h)
	did(err)
	_, err = e.Report(ctx, h, "r1", picket.Progress{Summary: "half way"})
	did(err)
	_, err = e.Renew(ctx, h)
	did(err)
	_, err = e.Complete(ctx, h, picket.Completion{Output: picket.RawJSON(`"done"`)})
	did(err)
	_, err = e.Approve(ctx, kit.Operator, task.TaskID, picket.Decision{})
	did(err)
	return n
}

// A worker that advances from task to task calls twice a task, where one that
// completes and acquires calls three times: by the server's own count.
func TestAdvanceSavesARoundTripReal(t *testing.T) {
	s := rig.Real(t)
	store, err := orchestrator.Open(t.Context(),
		orchestrator.Config{Redis: s.Redis, Sealer: rig.Sealer(), Witness: t.TempDir(), Found: true,
			Log: slog.New(slog.DiscardHandler)})
	kit.OK(t, err)
	defer store.Close()
	raw := rig.Hashes(redis.NewUniversalClient(&s.Redis))
	defer raw.Close()
	e := store.Engine("default")
	const lives = 10
	spent := map[bool]int{}
	for _, advances := range []bool{true, true, false} { // the first time the scripts are loaded
		before := commandCalls(t, raw)
		runLives(t, e, lives, advances)
		spent[advances] = commandCalls(t, raw)["fcall"] - before["fcall"]
	}
	if want := 3*lives - (lives - 1); spent[true] != want || spent[false] != 3*lives {
		t.Errorf("%d lives cost %d calls with advance, want %d, and %d without, want %d", lives, spent[true], want,
			spent[false], 3*lives)
	}
}

// runLives submits some tasks and completes one after the other.
func runLives(t *testing.T, e *orchestrator.Engine, lives int, advances bool) {
	t.Helper()
	for range lives {
		_, err := e.Submit(t.Context(), kit.Operator, picket.TaskSpec{Title: "a task"})
		kit.OK(t, err)
	}
	var leases []picket.Lease
	for n := range lives {
		var err error
		if n == 0 || !advances {
			leases, err = e.Acquire(t.Context(), kit.Operator, picket.AcquireRequest{AgentID: "a1"})
			kit.OK(t, err)
		}
		h, err := rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
		kit.OK(t, err)
		if !advances || n == lives-1 {
			_, err = e.Complete(t.Context(), h, picket.Completion{Output: picket.RawJSON(`1`)})
			kit.OK(t, err)
			continue
		}
		got, err := e.Advance(t.Context(), h, kit.Operator,
			picket.AdvanceRequest{Output: picket.RawJSON(`1`), Acquire: picket.AcquireRequest{AgentID: "a1"}})
		kit.OK(t, err)
		if leases = got.Leases; len(leases) != 1 {
			t.Fatalf("advanced to %+v", got)
		}
	}
}

// commandCalls reads how often the server has run each command.
func commandCalls(t *testing.T, c redis.UniversalClient) map[string]int {
	t.Helper()
	text, err := c.Info(t.Context(), "commandstats").Result()
	kit.OK(t, err)
	calls := map[string]int{}
	for line := range strings.Lines(text) {
		name, rest, found := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "cmdstat_"), ":calls=")
		if !found {
			continue
		}
		count, _, _ := strings.Cut(rest, ",")
		calls[name], err = strconv.Atoi(count)
		kit.OK(t, err)
	}
	return calls
}
