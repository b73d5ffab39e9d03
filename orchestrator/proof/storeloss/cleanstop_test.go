package storeloss

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// installation is a server process with a store and a witness of its own, as
// `picket up` is, on a machine that it may share with others.
type installation struct {
	t       *testing.T
	server  *rig.DurableServer
	witness string
	tickets string // of the machine
	clock   func() time.Time
	store   *orchestrator.Store
	reached func(point string) // is called at every fault point; nil for nobody
	killAt  string             // the fault point at which the process is killed; "" for nowhere
	killed  bool
	task    string
	tokens  []int64 // granted, in order
}

func newInstallation(t *testing.T, tickets string, clock func() time.Time) *installation {
	return &installation{t: t, server: rig.StartDurableServer(t), witness: t.TempDir(), tickets: tickets, clock: clock}
}

var errKilled = errors.New("the process was killed")

// open starts the process on a server that runs.
func (i *installation) open() error {
	i.t.Helper()
	i.killed = false
	s := i.server.Store()
	store, err := orchestrator.Open(i.t.Context(), orchestrator.Config{Redis: s.Redis, Sealer: rig.Sealer(),
		Log: slog.New(slog.DiscardHandler), Witness: i.witness, Tickets: i.tickets, Address: "own", Found: true,
		Now: i.clock, Quotas: orchestrator.Quotas{Runs: 1 << 20},
		Fault: func(point string) error {
			if i.reached != nil {
				i.reached(point)
			}
			if i.killed = i.killed || point == i.killAt; i.killed {
				return errKilled
			}
			return nil
		}})
	if err != nil {
		return err
	}
	i.store = store
	i.t.Cleanup(func() { _ = store.Close() })
	return nil
}

// floor is that of the last adoption, 0 if there was none.
func (i *installation) floor() int64 {
	i.t.Helper()
	stats, err := i.store.Engine("default").Stats(i.t.Context())
	kit.OK(i.t, err)
	return stats.Floor
}

// grant gives the one task to an agent and takes it back.
func (i *installation) grant() int64 {
	i.t.Helper()
	ctx, e := i.t.Context(), i.store.Engine("default")
	if i.task == "" {
		task, err := e.Submit(ctx, kit.Operator, picket.TaskSpec{Title: "a task"})
		kit.OK(i.t, err)
		i.task = task.TaskID
	}
	leases, err := e.Acquire(ctx, kit.Operator, picket.AcquireRequest{})
	kit.OK(i.t, err)
	if len(leases) != 1 {
		i.t.Fatalf("granted %d leases", len(leases))
	}
	h, err := rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	kit.OK(i.t, err)
	_, err = e.Release(ctx, h, picket.Exit{Class: picket.ExitReleased})
	kit.OK(i.t, err)
	token := leases[0].FencingToken
	i.tokens = append(i.tokens, token)
	return token
}

// stop stops the process and then its store, as `picket up` does.
func (i *installation) stop() {
	kit.OK(i.t, i.store.CloseMarked(i.t.Context()))
	i.server.Kill()
}

// start starts store and process. It reports whether the floor has changed.
func (i *installation) start(floor int64) (adopted bool) {
	i.t.Helper()
	i.server.Start()
	kit.OK(i.t, i.open())
	return i.floor() != floor
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	kit.OK(t, os.RemoveAll(to))
	kit.OK(t, os.CopyFS(to, os.DirFS(from)))
}

// A process that is killed at any moment of its stop or of its next start leaves a store
// that is adopted, or one that goes on, and never grants a token twice. Only a stop and a
// start that both went to their ends change nothing.
func TestKilledAroundAMarkedStopReal(t *testing.T) {
	for _, c := range []struct {
		atStop, atStart string
		adopted         bool
	}{
		{"", "", false},
		{"redis.mark_stop.before", "", true},
		{"redis.mark_stop.after", "", true}, // the reply is lost, so it stops there
		{"stopmark.write", "", true},
		{"stopmark.fsync", "", true},
		{"stopmark.rename", "", true},
		{"stopmark.dirsync", "", true}, // there is no ticket
		{"ticket.write", "", true},
		{"", "stopmark.remove", true}, // the ticket is gone
		{"", "stopmark.removed", true},
		{"", "redis.take_mark.before", true},
		{"", "redis.take_mark.after", false}, // it was consumed everywhere; the server is the same
	} {
		t.Run("stop "+c.atStop+" start "+c.atStart, func(t *testing.T) {
			i := newInstallation(t, t.TempDir(), kit.FastClock())
			kit.OK(t, i.open())
			last := i.grant()
			i.killAt = c.atStop
			kit.OK(t, i.store.CloseMarked(t.Context()))
			i.killAt = ""
			i.server.Kill()
			i.server.Start()
			if c.atStart != "" {
				i.killAt = c.atStart
				if i.open() == nil {
					t.Fatal("a killed process starts")
				}
				i.killAt = "" // the redis-server lives on, and the next start finds it
			}
			kit.OK(t, i.open())
			next, adopted := i.grant(), i.floor() > 0
			if adopted != c.adopted || next <= last || !adopted && next != last+1 {
				t.Errorf("adopted %v, want %v; granted %d after %d", adopted, c.adopted, next, last)
			}
			// Whatever happened, the next restart can be calm.
			floor := i.floor()
			i.stop()
			if i.start(floor) || i.grant() != next+1 {
				t.Errorf("the next restart is adopted: tokens %d", i.tokens)
			}
		})
	}
}

// The process is killed right after its mark, and its redis-server lives on: the next start
// takes it over as it is.
func TestKilledRightAfterTheMarkReal(t *testing.T) {
	i := newInstallation(t, t.TempDir(), kit.FastClock())
	kit.OK(t, i.open())
	last := i.grant()
	kit.OK(t, i.store.CloseMarked(t.Context()))
	kit.OK(t, i.open())
	if next := i.grant(); next != last+1 {
		t.Errorf("granted %d after %d", next, last)
	}
}

// Another process writes on while the store is stopped. Without a witness it is refused.
// With one it adopts the store, so the next start has the higher floor.
func TestWritesDuringAMarkedStopReal(t *testing.T) {
	for _, adopts := range []bool{false, true} {
		t.Run(fmt.Sprint("adopts ", adopts), func(t *testing.T) {
			i := newInstallation(t, t.TempDir(), kit.FastClock())
			kit.OK(t, i.open())
			last := i.grant()
			witness := ""
			if adopts {
				witness = t.TempDir()
			}
			s := i.server.Store()
			other, err := orchestrator.Open(t.Context(), orchestrator.Config{Redis: s.Redis, Sealer: rig.Sealer(),
				Log: slog.New(slog.DiscardHandler), Witness: witness, Now: i.clock})
			kit.OK(t, err)
			defer other.Close()
			e := other.Engine("default")
			ctx, cancel := context.WithCancel(t.Context())
			first, marked, tried := make(chan struct{}), make(chan struct{}), make(chan struct{})
			written, refused := 0, 0
			go func() {
				defer close(tried)
				for after := 0; ctx.Err() == nil && after < 20; {
					_, err := e.Submit(ctx, kit.Operator, picket.TaskSpec{Title: "beside", Role: "nobody"})
					if written++; written == 1 {
						close(first)
					}
					select {
					case <-marked:
						after++
						if err != nil {
							refused++
						}
					default:
					}
				}
			}()
			<-first
			kit.OK(t, i.store.CloseMarked(t.Context()))
			close(marked)
			<-tried
			cancel()
			if adopts != (refused == 0) {
				t.Errorf("%d of 20 writes after the mark were refused", refused)
			}
			i.server.Kill()
			floor := int64(0)
			if i.start(floor) != adopts {
				t.Errorf("floor %d", i.floor())
			}
			if next := i.grant(); next <= last || !adopts && next != last+1 {
				t.Errorf("granted %d after %d", next, last)
			}
		})
	}
}

// An older state is put back under the living server of a process that has granted nothing itself.
// The process has seen at its start how many grants there were, so it does not mark its stop.
func TestAStatePutBackBeforeAStopIsAdoptedReal(t *testing.T) {
	i := newInstallation(t, t.TempDir(), kit.FastClock())
	i.server = rig.StartDurableServer(t, "--enable-debug-command", "yes")
	kit.OK(t, i.open())
	i.grant()
	size := i.server.Size()
	last := i.grant()
	kit.OK(t, i.store.Close()) // as a process that is killed: its server lives on
	kit.OK(t, i.open())
	i.server.Rewind(func(int64) int64 { return size })
	i.stop()
	if !i.start(0) {
		t.Error("it was not adopted")
	}
	if next := i.grant(); next <= last {
		t.Errorf("granted %d after %d", next, last)
	}
}

// Files are put back and whole directories copied, in any order, between stops of any kind.
// Tokens of an installation rise, and no two installations grant the same one. A clean
// stop with nothing in between changes no floor.
func TestMarkedStopsAndCopiesReal(t *testing.T) {
	rnd := rand.New(rand.NewPCG(rig.Seed(t), 0))
	clock, machine := kit.FastClock(), t.TempDir()
	first := newInstallation(t, machine, clock)
	kit.OK(t, first.open())
	first.grant()
	granted, calm, copies := map[int64]string{}, 0, 0
	copyRedis, copyWitness := []string{}, []string{} // of stops, oldest first
	keep := func() {
		redis, witness := filepath.Join(t.TempDir(), "redis"), filepath.Join(t.TempDir(), "witness")
		first.server.Snapshot(redis)
		copyDir(t, first.witness, witness)
		copyRedis, copyWitness = append(copyRedis, redis), append(copyWitness, witness)
	}
	record := func(i *installation, who string) {
		n := len(i.tokens)
		token := i.grant()
		if n > 0 && token <= i.tokens[n-1] {
			t.Fatalf("%s granted %d after %d", who, token, i.tokens[n-1])
		}
		if other, twice := granted[token]; twice {
			t.Fatalf("%s granted %d, which %s had granted", who, token, other)
		}
		granted[token] = who
	}
	granted[first.tokens[0]] = "first"
	for range rig.SoakRounds(t, "clean stops", 40, 1000) {
		record(first, "first")
		floor, clean := first.floor(), rnd.IntN(4) > 0
		if clean {
			first.stop()
		} else {
			kit.OK(t, first.store.Close())
			first.server.Kill()
		}
		keep()
		kind := rnd.IntN(6)
		older := rnd.IntN(len(copyRedis))
		switch kind {
		case 0: // only the store is put back
			first.server.Restore(copyRedis[older])
		case 1: // only the witness
			copyDir(t, copyWitness[older], first.witness)
		case 2: // both, of one moment
			first.server.Restore(copyRedis[older])
			copyDir(t, copyWitness[older], first.witness)
		case 3: // a copy of this moment or of an earlier one is started beside
			copies++
			second := newInstallation(t, machine, clock)
			second.task = first.task
			second.server.Kill()
			second.server.Restore(copyRedis[older])
			copyDir(t, copyWitness[older], second.witness)
			second.server.Start()
			kit.OK(t, second.open())
			record(second, fmt.Sprint("copy ", copies))
			defer second.server.Kill()
			if rnd.IntN(2) == 0 {
				second.stop()
				second.start(0)
				record(second, fmt.Sprint("copy ", copies))
			}
			kit.OK(t, second.store.Close())
		}
		changed := kind == 0 && older < len(copyRedis)-1 || kind == 1 && older < len(copyRedis)-1 ||
			kind == 2 && older < len(copyRedis)-1
		adopted := first.start(floor)
		switch {
		case !clean && !adopted:
			t.Fatal("a store that was killed was not adopted")
		case changed && !adopted:
			t.Fatalf("an older state was not adopted (%d)", kind)
		case clean && !changed && adopted:
			t.Fatalf("a clean stop was adopted (%d)", kind)
		case !adopted:
			calm++
		}
		record(first, "first")
	}
	t.Logf("%d tokens, %d restarts without an adoption, %d copies", len(granted), calm, copies)
}

// A machine that has started since, or one that others have written to, has no ticket.
func TestATicketIsOfThisMachineAndUserReal(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, ticket string){
		"the machine has started": func(t *testing.T, ticket string) { kit.OK(t, os.Remove(ticket)) },
		"the clock was set, as on a machine that was put back with its memory": func(t *testing.T, ticket string) {
			text, err := os.ReadFile(ticket)
			kit.OK(t, err)
			kit.OK(t, os.WriteFile(ticket, []byte(strings.Replace(string(text), `"boot": `, `"boot": 1`, 1)), 0o600))
		},
		"somebody kept a link": func(t *testing.T, ticket string) {
			kit.OK(t, os.Link(ticket, filepath.Join(t.TempDir(), "kept")))
		},
		"everybody may write it": func(t *testing.T, ticket string) { kit.OK(t, os.Chmod(ticket, 0o666)) },
		"it is a link": func(t *testing.T, ticket string) {
			other := filepath.Join(t.TempDir(), "other")
			kit.OK(t, os.Rename(ticket, other))
			kit.OK(t, os.Symlink(other, ticket))
		},
		"it is of another directory": func(t *testing.T, ticket string) {
			text, err := os.ReadFile(ticket)
			kit.OK(t, err)
			kit.OK(t, os.WriteFile(ticket, []byte(strings.Replace(string(text), "default@", "other@", 1)), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInstallation(t, t.TempDir(), kit.FastClock())
			kit.OK(t, i.open())
			i.grant()
			i.stop()
			found, err := filepath.Glob(filepath.Join(i.tickets, "picket-stopped-*"))
			if err != nil || len(found) != 1 {
				t.Fatalf("tickets %v, %v", found, err)
			}
			change(t, found[0])
			if !i.start(0) {
				t.Error("it was not adopted")
			}
		})
	}
}

// Tickets of directories that were deleted are removed, those of others stay.
func TestTicketsDoNotPileUpReal(t *testing.T) {
	machine := t.TempDir()
	var kept []*installation
	for n := range 4 {
		i := newInstallation(t, machine, kit.FastClock())
		kit.OK(t, i.open())
		i.stop()
		if n%2 == 0 {
			kit.OK(t, os.RemoveAll(i.witness))
			continue
		}
		kept = append(kept, i)
	}
	found, err := filepath.Glob(filepath.Join(machine, "*"))
	if err != nil || len(found) != len(kept) {
		t.Errorf("%d tickets for %d directories, %v", len(found), len(kept), err)
	}
	for _, i := range kept {
		if i.start(0) {
			t.Error("a ticket of another directory was removed")
		}
	}
}

// Another process of the machine stops at any moment of a stop. Both next starts are without an adoption.
func TestTwoMarkedStopsAtOnceReal(t *testing.T) {
	machine := t.TempDir()
	first, second := newInstallation(t, machine, kit.FastClock()), newInstallation(t, machine, kit.FastClock())
	kit.OK(t, first.open())
	kit.OK(t, second.open())
	for _, point := range []string{"redis.mark_stop.after", "stopmark.write", "stopmark.rename", "stopmark.dirsync",
		"ticket.write"} {
		t.Run(point, func(t *testing.T) {
			floors, reached := [...]int64{first.floor(), second.floor()}, false
			first.reached = func(at string) {
				if at == point && !reached {
					reached = true
					second.stop()
				}
			}
			first.stop()
			first.reached = nil
			if !reached {
				t.Fatal("the stop does not come by this point")
			}
			if first.start(floors[0]) {
				t.Error("the first is adopted")
			}
			if second.start(floors[1]) {
				t.Error("the second is adopted")
			}
		})
	}
}

// A store that the process does not own is adopted after every restart, as ever.
func TestWithoutTicketsEveryRestartIsAdoptedReal(t *testing.T) {
	i := newInstallation(t, "", kit.FastClock())
	kit.OK(t, i.open())
	i.stop()
	if !i.start(0) {
		t.Error("it was not adopted")
	}
}

// The check of the stop mark bites.
func TestStopMarkFindsPlantedBugsReal(t *testing.T) {
	for _, bug := range []struct {
		name string
		line kit.MarkedLine
	}{
		{"any process marks the stop", kit.MarkedLine{"marks-own-stop", ""}},
		{"a state that was put back is marked", kit.MarkedLine{"marks-newest-state", ""}},
		{"a marked store serves", kit.MarkedLine{"out-of-service", ""}},
		{"any mark is taken", kit.MarkedLine{"same-mark", "type('adopt_lost')"}},
		{"a mark is taken again and again", kit.MarkedLine{"takes-mark", "put(stopped, 'now', NOW, 'raw', RAW)"}},
	} {
		t.Run(bug.name, func(t *testing.T) {
			s := rig.Real(t)
			raw := rig.Hashes(redis.NewUniversalClient(&s.Redis))
			defer raw.Close()
			kit.OK(t, raw.FlushAll(t.Context()).Err())
			f := kit.OpenFixture(t, s)
			defer f.Close()
			plantMarked(t, bug.line)(f.Store)
			err := kit.CheckStopMark(t, f)
			if err == nil {
				t.Fatal("nothing was found")
			}
			t.Logf("found: %v", err)
		})
	}
}
