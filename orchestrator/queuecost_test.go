package orchestrator_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// addHandoffsAndReviews writes n open hand-offs and n tasks in review as the scripts would, all
// of one instant, which is the dearest to page through.
func (f *fixture) addHandoffsAndReviews(t *testing.T, n int) {
	t.Helper()
	const space = "pk:{default}:"
	for at := 0; at < n; at += 500 {
		_, err := f.Raw.Pipelined(f.Ctx, func(p redis.Pipeliner) error {
			for i := range 500 {
				id := ulid.Make().String()
				task, run, hid := "task_"+id, "run_"+id, "handoff_"+id
				p.HSet(f.Ctx, space+"task:"+task, "state", "review", "run", run, "order", at+i, "token", "1", "role",
					"coder")
				p.Set(f.Ctx, space+"spec:"+task, `{"title":"planted"}`, 0)
				p.Set(f.Ctx, space+"out:"+task, `{"output":"done","summary":""}`, 0)
				p.ZAdd(f.Ctx, space+"by-state:review", redis.Z{Score: float64(at + i), Member: task})
				p.ZAdd(f.Ctx, space+"by-role:coder", redis.Z{Score: float64(at + i), Member: task})
				p.HSet(f.Ctx, space+"handoff:"+hid, "task", task, "run", run, "kind", "question", "state", "open",
					"created", "1",
					"body", `{"question":"which?"}`, "deadline", "0", "policy", "wait", "claimed", "")
				p.ZAdd(f.Ctx, space+"handoffs:open", redis.Z{Score: 1, Member: hid})
			}
			return nil
		})
		kit.OK(t, err)
	}
}

// serverCommandsOf counts what the server has run for a call, scripts' own calls included.
func (f *fixture) serverCommandsOf(t *testing.T, act func()) (n int) {
	t.Helper()
	before := commandCalls(t, f.Raw)
	act()
	for command, calls := range commandCalls(t, f.Raw) {
		if command != "info" && command != "fcall" {
			n += calls - before[command]
		}
	}
	return n
}

// A page costs what its rows cost, however many wait behind it; one with a
// filter that nothing matches looks at 2,000 tasks and says where to go on. All
// pages together show every row once.
func TestAPageCostsNoMoreThanItsRowsReal(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.Close()
	const few, many, limit = 500, 10_000, 50
	var cost [2][3]int
	var bytes [2]int
	for i, n := range []int{few, many} {
		f.addHandoffsAndReviews(t, n-few*i)
		last := ""
		for range 3 { // not the first page
			page, err := f.Handoffs(f.Ctx, picket.HandoffQuery{Limit: limit, Cursor: last})
			kit.OK(t, err)
			if len(page.Handoffs) != limit || page.Total != int64(n) || page.NextCursor == nil {
				t.Fatalf("%d rows of %d", len(page.Handoffs), page.Total)
			}
			last = *page.NextCursor
		}
		cost[i] = [3]int{
			f.serverCommandsOf(t, func() {
				page, err := f.Handoffs(f.Ctx, picket.HandoffQuery{Limit: limit, Cursor: last})
				kit.OK(t, err)
				text, err := json.Marshal(page)
				kit.OK(t, err)
				bytes[i] = len(text)
			}),
			f.serverCommandsOf(t, func() {
				_, err := f.Reviews(f.Ctx, picket.ReviewQuery{Limit: limit, Cursor: "200"})
				kit.OK(t, err)
			}),
			f.serverCommandsOf(t, func() {
				_, err := f.Reviews(f.Ctx, picket.ReviewQuery{Limit: limit, Role: "coder", Cursor: "200"})
				kit.OK(t, err)
			}),
		}
		t.Logf("%d wait: a page of hand-offs costs %d calls, one of reviews %d, with a filter %d; %d bytes", n,
			cost[i][0], cost[i][1], cost[i][2], bytes[i])
	}
	const halving = 2 * 14 // of those of one instant
	for i, most := range [3]int{limit*8 + halving + 10, limit*12 + 10, limit*13 + 10} {
		if cost[1][i] > most || cost[1][i] > cost[0][i]+halving {
			t.Errorf("page %d costs %d calls of 10,000 and %d of 500, at most %d are its rows'", i, cost[1][i],
				cost[0][i], most)
		}
	}
	if bytes[1] > bytes[0]+limit || bytes[1] > 64<<10 {
		t.Errorf("a page has %d bytes of 10,000 and %d of 500", bytes[1], bytes[0])
	}
	kit.OK(t, f.Raw.Rename(f.Ctx, "pk:{default}:by-role:coder", "pk:{default}:by-role:other").Err())
	for at := range 9000 { // all of it in the set, none of it in review
		kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:by-role:coder",
			redis.Z{Score: float64(at), Member: fmt.Sprint("task_", at)}).Err())
	}
	var page picket.ReviewPage
	if n := f.serverCommandsOf(t, func() {
		var err error
		page, err = f.Reviews(f.Ctx, picket.ReviewQuery{Limit: limit, Role: "coder"})
		kit.OK(t, err)
	}); n > 2010 || len(page.Reviews) != 0 || page.NextCursor == nil {
		t.Errorf("a page that nothing matches costs %d calls and shows %d", n, len(page.Reviews))
	}
	shown := f.HandoffPages(t, 200, nil)
	if len(shown) != many || distinct(shown) != many {
		t.Errorf("the pages show %d hand-offs, %d different ones", len(shown), distinct(shown))
	}
	if shown := f.ReviewPages(t, picket.ReviewQuery{Limit: 200, Role: "other"}); len(shown) != many ||
		distinct(shown) != many {
		t.Errorf("the pages show %d reviews", len(shown))
	}
}

// distinct counts different ids.
func distinct(ids []string) int { return len(slices.Compact(slices.Sorted(slices.Values(ids)))) }
