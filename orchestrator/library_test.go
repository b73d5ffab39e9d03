package orchestrator_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// otherBuild makes a store run the library of another build, which does the same.
func otherBuild(s *orchestrator.Store) {
	kit.RewriteEach(s, func(name, text string) string {
		if name == "renew" {
			return strings.Replace(text, "put(r, ", "local another = 'build'\nput(r, ", 1)
		}
		return text
	})
}

// libraries are the names of the libraries of Picket in a Redis.
func libraries(t *testing.T, c redis.UniversalClient) (names []string) {
	t.Helper()
	list, err := c.FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: "picket_*"}).Result()
	kit.OK(t, err)
	for _, l := range list {
		names = append(names, l.Name)
	}
	return names
}

// Two builds work on one store at the same time, each with its own functions. When no server
// has run one of them for a day, its functions are deleted; when it comes back, it loads them.
func TestTwoBuildsShareAStoreReal(t *testing.T) {
	s := rig.Real(t)
	f := kit.OpenFixture(t, s)
	defer f.Close()
	kit.OK(t, f.Raw.FunctionFlush(f.Ctx).Err())
	var clock time.Duration
	other := f.OpenProcess(t, s, orchestrator.Config{Now: func() time.Time { return time.Now().Add(clock) }})
	otherBuild(other)
	e := other.Engine("default")
	work := func() {
		t.Helper()
		task, err := e.Submit(f.Ctx, kit.Operator, picket.TaskSpec{Title: "by the other"})
		kit.OK(t, err)
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		if h.TaskID != task.TaskID {
			t.Fatalf("leased %s, want %s", h.TaskID, task.TaskID)
		}
		_, err = e.Renew(f.Ctx, h)
		kit.OK(t, err)
		_, err = f.Renew(f.Ctx, h)
		kit.OK(t, err)
		_, err = e.Complete(f.Ctx, h, picket.Completion{})
		kit.OK(t, err)
	}
	work()
	own, others := f.Store.Connection().Program().Library().Name, other.Connection().Program().Library().Name
	both := slices.Sorted(slices.Values([]string{own, others}))
	if got := slices.Sorted(slices.Values(libraries(t, f.Raw))); !slices.Equal(got, both) {
		t.Fatalf("the libraries are %v, want %v", got, both)
	}
	tidy := func(after time.Duration, want ...string) {
		t.Helper()
		clock = after
		kit.OK(t, other.Connection().TidyLibraries(f.Ctx))
		if got := slices.Sorted(slices.Values(libraries(t, f.Raw))); !slices.Equal(got, want) {
			t.Errorf("after %s the libraries are %v, want %v", after, got, want)
		}
	}
	tidy(23*time.Hour, both...) // and its own is as new as that now
	tidy(25*time.Hour, others)
	tidy(26*time.Hour, others)
	work()
	clock = 0
	// What Picket has not loaded is left alone, whatever its name.
	for _, name := range []string{"picket_0123456789abcdef", "picket_mine"} {
		kit.OK(t, f.Raw.FunctionLoad(f.Ctx, strings.ReplaceAll(libraryOfAnother, "NAME", name)).Err())
	}
	tidy(2000*time.Hour, slices.Sorted(slices.Values([]string{others, "picket_0123456789abcdef", "picket_mine"}))...)
}

// libraryOfAnother is one that Picket has not loaded.
const libraryOfAnother = "#!lua name=NAME\nredis.register_function('NAME_f', function() return 1 end)"

// Functions that are gone, as after FUNCTION FLUSH, are loaded again by the next call. Callers
// that need them at the same time wait for one load.
func TestLostFunctionsAreLoadedOnceReal(t *testing.T) {
	s := rig.Real(t)
	wire := &rig.CommandCounter{}
	s.Redis.Dialer = wire.Dialer(s.Redis.Dialer)
	f := kit.OpenFixture(t, s)
	defer f.Close()
	f.MustSubmit(t, picket.TaskSpec{})
	for range 5 {
		kit.OK(t, f.Raw.FunctionFlush(f.Ctx).Err())
		wire.Take()
		var callers sync.WaitGroup
		for range 40 {
			callers.Go(func() {
				if _, err := f.Submit(f.Ctx, kit.Operator, picket.TaskSpec{Title: "a task"}); err != nil {
					t.Errorf("submit: %v", err)
				}
			})
		}
		callers.Wait()
		if n := wire.Take()["function"]; n < 1 || n > 3 {
			t.Errorf("the library was sent %d times", n)
		}
	}
	stats, err := f.Stats(f.Ctx)
	kit.OK(t, err)
	if n := stats.Tasks[picket.TaskQueued]; n != 201 {
		t.Errorf("%d tasks were made of 201", n)
	}
}

// Without room for the functions, leases are renewed and end all the same. For anything else the error
// tells the reason, and nothing was changed.
func TestAFullStoreTakesNoFunctionsReal(t *testing.T) {
	s := rig.Real(t)
	f := kit.OpenFixture(t, s)
	defer f.Close()
	_, h := f.SubmitAndLease(t, picket.TaskSpec{})
	kit.OK(t, f.Raw.FunctionFlush(f.Ctx).Err())
	kit.OK(t, f.Raw.ConfigSet(f.Ctx, "maxmemory", "1").Err())
	t.Cleanup(func() { _ = f.Raw.ConfigSet(t.Context(), "maxmemory", "0").Err() })
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			if _, err := f.Renew(f.Ctx, h); err != nil {
				t.Errorf("renew without room for the functions: %v", err)
			}
		})
	}
	callers.Wait()
	_, err := f.Complete(f.Ctx, h, picket.Completion{})
	kit.OK(t, err)
	if got := libraries(t, f.Raw); len(got) != 0 {
		t.Errorf("the full store has taken %v", got)
	}
	_, err = f.CreateKey(f.Ctx, kit.Operator, picket.KeyRequest{Name: "new", Scopes: []picket.Scope{picket.ScopeAgent}})
	if picket.CodeOf(err) != picket.CodeStoreFull {
		t.Errorf("a key in a full store: %v", err)
	}
}

// An error of Lua names the file and the line.
func TestAnErrorNamesItsPlaceReal(t *testing.T) {
	f := kit.OpenFixture(t, rig.Real(t))
	defer f.Close()
	kit.RewriteEach(f.Store, func(name, text string) string {
		if name == "stats" {
			return strings.Replace(text, "\nreturn ", "\nerror('broken') return ", 1)
		}
		return text
	})
	_, err := f.Stats(f.Ctx)
	t.Log(err)
	if err == nil || !strings.Contains(err.Error(), "(stats.lua:") {
		t.Errorf("got %v, want the place in stats.lua", err)
	}
}
