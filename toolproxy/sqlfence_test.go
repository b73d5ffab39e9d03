package toolproxy_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/toolproxy"
	"github.com/picket-dev/picket/toolproxy/tools"
)

// A stale token cannot write even if every check before the database is bypassed. Neither can
// another lease with the same token.
func sqlHighWaterMark(t *testing.T, b sqlEnv) {
	step := func(token int64, run int, n int, want picket.Code) {
		t.Helper()
		h := newFakeRun(token, run)
		err := b.write(t, h, fmt.Sprintf("INSERT INTO entries VALUES (%d, 'token %d')", n, token))
		wrote := len(b.pg.run(t, fmt.Sprintf("SELECT n FROM entries WHERE n = %d", n))) == 1
		if want == "" && (err != nil || !wrote) || want != "" && (picket.CodeOf(err) != want || wrote) {
			t.Errorf("token %d of run %d: %v, written %t", token, run, err, wrote)
		}
		if h.req.Effects != picket.EffectsExternal {
			t.Errorf("effects are %s", h.req.Effects)
		}
		if want != "" {
			h.expectSettled(t, 0)
			if !slices.Contains(h.refused, "sql stale_fence") {
				t.Errorf("the refused write is not recorded: %v", h.refused)
			}
		}
	}
	step(17, 0, 101, "")
	step(17, 0, 102, "")
	step(17, 1, 103, picket.CodeStaleFence)
	step(18, 1, 104, "")
	step(17, 0, 105, picket.CodeStaleFence)
	step(1<<21+1, 2, 106, "")
	step(18, 1, 107, picket.CodeStaleFence)
	if got := b.pg.run(t,
		"SELECT token || ' ' || (SELECT count(*) FROM picket_fence) FROM picket_fence"); !slices.Equal(got,
		[]string{"2097153 1"}) {
		t.Errorf("marks: %v", got)
	}
}

// A writer that is frozen in the middle of its transaction has not committed
// when the next one comes, and cannot any more once the server has ended it.
func sqlFrozen(t *testing.T, b sqlEnv) {
	frozen := b.pg.connect(t)
	defer func() { _ = frozen.Close(context.Background()) }()
	mark := fmt.Sprintf("INSERT INTO picket_fence AS mark VALUES ('default/%s', 17, 'run_a', now()) ON CONFLICT (task) DO UPDATE SET token = 17 WHERE mark.token < 17", aTask)
	if _, err := frozen.Exec(t.Context(),
		"BEGIN; SET LOCAL idle_in_transaction_session_timeout = 300; "+mark+
			"; INSERT INTO entries VALUES (201, 'frozen')").ReadAll(); err != nil {
		t.Fatal(err)
	}
	if err := b.write(t, newFakeRun(18, 1), "INSERT INTO entries VALUES (202, 'next')"); err != nil {
		t.Fatal(err)
	}
	if _, err := frozen.Exec(t.Context(), "COMMIT").ReadAll(); err == nil {
		t.Error("the frozen writer has committed after the next one")
	}
	if got := b.pg.run(t, "SELECT n FROM entries WHERE n IN (201, 202)"); !slices.Equal(got, []string{"202"}) {
		t.Errorf("entries are %v", got)
	}
}

// Two holders at the same time come one after the other, and never in the
// wrong order.
func sqlOrder(t *testing.T, b sqlEnv) {
	b.pg.run(t, "CREATE TABLE written (at serial, token bigint)")
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			token := int64(300 + i%8)
			err := b.write(t, newFakeRun(token, i%8), fmt.Sprintf("INSERT INTO written (token) VALUES (%d)", token))
			if err != nil && picket.CodeOf(err) != picket.CodeStaleFence {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	got := b.pg.run(t, "SELECT token FROM written ORDER BY at")
	if len(got) == 0 || !slices.IsSorted(got) {
		t.Errorf("written in the order %v", got)
	}
}

// Marks can stand in a schema of their own, and are raised by many at once.
func sqlFirstUse(t *testing.T, b sqlEnv) {
	b.pg.fence(t, newSealer(t), "marks.fresh")
	other := newSQLEnv(t, b.pg, tools.Database{Marks: "marks.fresh"})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if err := other.write(t, newFakeRun(17, 0),
				fmt.Sprintf("INSERT INTO entries VALUES (%d, 'first')", 400+i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := b.pg.run(t, "SELECT count(*) FROM entries WHERE by = 'first'"); got[0] != "8" {
		t.Errorf("%s of 8 are written", got[0])
	}
}

// Where the marks are missing a write is refused with what to do; reading works.
func sqlNoRight(t *testing.T, b sqlEnv) {
	b.pg.run(t, "CREATE ROLE poor LOGIN; GRANT SELECT ON entries TO poor")
	for _, db := range []tools.Database{{URL: b.pg.as("poor")}, {Marks: "missing"}, {Marks: "nowhere.missing"}} {
		other, h := newSQLEnv(t, b.pg, db), newFakeRun(17, 0)
		err := other.write(t, h, "INSERT INTO entries VALUES (500, 'x')")
		if e, ok := err.(*picket.Error); !ok || e.Code != picket.CodeUpstream ||
			!strings.Contains(e.Remedy, "picket fence-sql main") {
			t.Errorf("%v", err)
		}
		h.expectSettled(t, 0)
		if _, err := other.sql(t, newFakeRun(17, 0),
			map[string]any{"statement": "SELECT 1", "readOnly": true}); err != nil {
			t.Error(err)
		}
	}
}

func sqlAway(t *testing.T, b sqlEnv) {
	secret := "hunter2"
	other := newSQLEnv(t, b.pg,
		tools.Database{URL: picket.Secret("host=" + t.TempDir() + " user=u password=" + secret + " dbname=d")})
	h := newFakeRun(17, 0)
	err := other.write(t, h, "SELECT 1")
	if picket.CodeOf(err) != picket.CodeUpstream || strings.Contains(fmt.Sprint(err), secret) {
		t.Errorf("%v", err)
	}
	h.expectSettled(t, 0)
	for name, db := range map[string]tools.Database{
		"url":   {URL: "postgres://u:hunter2@[broken/"},
		"table": {URL: b.pg.url, Marks: "a;b"},
	} {
		_, err := toolproxy.New(toolproxy.Config{
			Sealer:  newSealer(t),
			Backend: func(string) toolproxy.Backend { return nil },
			Parts:   []toolproxy.Part{tools.SQL(newSealer(t), map[string]tools.Database{"main": db})},
		})
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
