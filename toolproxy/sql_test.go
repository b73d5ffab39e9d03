package toolproxy_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/toolproxy"
	"github.com/picket-dev/picket/toolproxy/tools"
)

// sqlEnv is a proxy with a database, where a statement costs a cent.
type sqlEnv struct {
	*toolproxy.Proxy
	pg *postgres
}

func newSQLEnv(t testing.TB, pg *postgres, db tools.Database) sqlEnv {
	t.Helper()
	return newSQLEnvOf(t, newSealer(t), pg, db)
}

func newSQLEnvOf(t testing.TB, s *seal.Sealer, pg *postgres, db tools.Database) sqlEnv {
	t.Helper()
	if db.URL == "" {
		db.URL = pg.as("agents")
	}
	p, err := toolproxy.New(toolproxy.Config{
		Sealer:  s,
		Backend: func(string) toolproxy.Backend { return nil },
		Log:     slog.New(slog.DiscardHandler),
		Parts:   []toolproxy.Part{tools.SQL(s, map[string]tools.Database{"main": db})},
		Prices:  priceList(t, map[string]budget.Price{"sql": {Call: cent, ChargeOn: budget.ChargeOnSuccess}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return sqlEnv{p, pg}
}

// fakeRun is an envelope of a run with its own fencing token.
type fakeRun struct {
	*fakeEnvelope
	held  picket.LeaseCredential
	token int64
	req   picket.CallRequest
}

func (h *fakeRun) Reserve(ctx context.Context, held picket.LeaseCredential,
	req picket.CallRequest) (picket.Reservation, error) {
	h.mu.Lock()
	h.req = req
	h.mu.Unlock()
	r, err := h.fakeEnvelope.Reserve(ctx, held, req)
	r.Token = h.token
	return r, err
}

var runs = "ABCDEFGHJK"

// newFakeRun is a run of the task under a token; runs differ by their number.
func newFakeRun(token int64, run int) *fakeRun {
	return &fakeRun{
		fakeEnvelope: newFakeEnvelope(100 * cent),
		token:        token,
		held: picket.LeaseCredential{
			Namespace: "default",
			TaskID:    aTask,
			RunID:     aRun[:len(aRun)-1] + runs[run:run+1],
		},
	}
}

func (b sqlEnv) sql(t testing.TB, h *fakeRun, args map[string]any) (map[string]any, error) {
	t.Helper()
	if args["database"] == nil {
		args["database"] = "main"
	}
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.Invoke(t.Context(), h, h.held, "sql", raw, "")
	if err != nil {
		return nil, err
	}
	return decode(t, string(out)), nil
}

func (b sqlEnv) write(t testing.TB, h *fakeRun, statement string) error {
	t.Helper()
	a, err := b.sql(t, h, map[string]any{"statement": statement})
	if err == nil && a["error"] != nil {
		return fmt.Errorf("%v", a["error"])
	}
	return err
}

func TestSQL(t *testing.T) {
	rig.SkipShort(t)
	pg := startPostgres(t)
	b := newSQLEnv(t, pg, tools.Database{})
	// The defaults give agents far too much: what the marks need takes it back.
	pg.run(t,
		"CREATE ROLE agents LOGIN; GRANT CREATE ON SCHEMA public TO agents; ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO agents; "+
			"ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO agents; ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO agents; CREATE TABLE entries (n int PRIMARY KEY, by text)")
	pg.fence(t, newSealer(t), "")
	for name, test := range map[string]func(*testing.T, sqlEnv){
		"Values":        sqlValues,
		"Refusals":      sqlRefusals,
		"Caps":          sqlCaps,
		"ReadOnly":      sqlReadOnly,
		"HighWaterMark": sqlHighWaterMark,
		"Frozen":        sqlFrozen,
		"Order":         sqlOrder,
		"FirstUse":      sqlFirstUse,
		"NoRight":       sqlNoRight,
		"Away":          sqlAway,
		"Session":       sqlSession,
		"Attacks":       sqlAttacks,
		"Forged":        sqlForged,
		"Shadows":       sqlShadows,
		"Keys":          sqlKeys,
		"Problems":      sqlProblems,
		"Migration":     sqlMigration,
	} {
		pg.run(t, "DELETE FROM picket_fence")
		t.Run(name, func(t *testing.T) { test(t, b) })
	}
}

func sqlValues(t *testing.T, b sqlEnv) {
	h := newFakeRun(17, 0)
	a, err := b.sql(t, h, map[string]any{
		"statement": "SELECT $1::bigint, $2::text, $3::boolean, $4::jsonb, $5::numeric, NULL, 'NaN'::float8, $6::timestamptz, '{1,2}'::int[]",
		"args": []any{int64(9007199254740993), "it's; DROP TABLE entries", true, map[string]any{"a": []int{1}},
			"1.10", "2026-01-02T03:04:05Z"},
	})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Invoke(t.Context(), h, h.held, "sql",
		[]byte(`{"database":"main","statement":"SELECT $1::bigint, 1.10::numeric AS price","args":[9007199254740993]}`),
		"")
	if err != nil || !strings.Contains(string(raw), `"rows":[[9007199254740993,1.10]]`) ||
		!strings.Contains(string(raw), `"columns":["int8","price"]`) {
		t.Errorf("%s %v", raw, err)
	}
	rows, _ := a["rows"].([]any)
	if row := rows[0].([]any); row[1] != "it's; DROP TABLE entries" || row[2] != true ||
		fmt.Sprint(row[3]) != "map[a:[1]]" || row[5] != nil || row[6] != "NaN" || row[8] != "{1,2}" {
		t.Errorf("%v", row)
	}
	if cost, _ := a["cost"].(map[string]any); cost["usd"] != 0.01 || a["command"] != "SELECT 1" ||
		a["rowCount"] != 1.0 {
		t.Errorf("%v", a)
	}
	a, err = b.sql(t, h, map[string]any{"statement": "INSERT INTO entries VALUES (1, 'a'), (2, 'b') RETURNING n"})
	if rows, _ := a["rows"].([]any); err != nil || len(rows) != 2 || a["command"] != "INSERT 0 2" {
		t.Errorf("%v %v", a, err)
	}
	// What the database refuses is rolled back, told, and here not charged.
	h = newFakeRun(17, 0)
	a, err = b.sql(t, h, map[string]any{"statement": "INSERT INTO entries VALUES (3, 'c'), (1, 'again')"})
	said, _ := a["error"].(map[string]any)
	if err != nil || said["sqlstate"] != "23505" || a["rolledBack"] != true ||
		len(b.pg.run(t, "SELECT n FROM entries WHERE n = 3")) != 0 {
		t.Errorf("%v %v", a, err)
	}
	h.expectSettled(t, 0)
}

func sqlRefusals(t *testing.T, b sqlEnv) {
	h := newFakeRun(17, 0)
	for statement, want := range map[string]string{
		"":                             "/statement",
		"  ":                           "/statement",
		"COMMIT":                       "/statement",
		" /* x */ -- y\n rollback":     "/statement",
		"((begin":                      "/statement",
		"SET search_path = x":          "/statement",
		"COPY entries TO PROGRAM 'id'": "/statement",
		"prepare transaction 'x'":      "/statement",
		"DELETE FROM Picket_Fence":     "/statement",
		"SELECT '\x00'":                "/statement",
		strings.Repeat("x", 65537):     "/statement",
	} {
		_, err := b.sql(t, h, map[string]any{"statement": statement})
		if field(err) != want {
			t.Errorf("%.40q: %v", statement, err)
		}
	}
	for name, args := range map[string]map[string]any{
		"/database":       {"database": "other", "statement": "SELECT 1"},
		"/args":           {"statement": "SELECT 1", "args": make([]int, 101)},
		"/timeoutSeconds": {"statement": "SELECT 1", "timeoutSeconds": 0},
		"/surprise":       {"statement": "SELECT 1", "surprise": 1},
	} {
		if _, err := b.sql(t, h, args); field(err) != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if h.asks != 0 {
		t.Errorf("%d reservations were asked for", h.asks)
	}
	// One statement at a time: the server itself sees to it.
	if err := b.write(t, h, "INSERT INTO entries VALUES (50, 'x'); DELETE FROM entries"); err == nil ||
		!strings.Contains(err.Error(), "42601") {
		t.Errorf("two statements: %v", err)
	}
	if err := b.write(t, h, "DO $$ BEGIN COMMIT; END $$"); err == nil {
		t.Error("a block has ended its transaction")
	}
}

func field(err error) string {
	if e, ok := err.(*picket.Error); ok {
		s, _ := e.Facts["field"].(string)
		return s
	}
	return ""
}

func sqlCaps(t *testing.T, b sqlEnv) {
	for statement, most := range map[string]int{
		"SELECT * FROM generate_series(1, 1001)":                   1000,
		"SELECT repeat('x', 100000) FROM generate_series(1, 1000)": 2,
		"SELECT repeat('x', 1000000)":                              0,
		"SELECT n FROM generate_series(1, 1000) n":                 1000,
		"SELECT generate_series(1, 100000000000::bigint)":          1000,
	} {
		cut := statement != "SELECT n FROM generate_series(1, 1000) n"
		a, err := b.sql(t, newFakeRun(17, 0), map[string]any{"statement": statement, "readOnly": true})
		if err != nil {
			t.Errorf("%s: %v", statement, err)
			continue
		}
		if rows, _ := a["rows"].([]any); len(rows) != most || a["truncated"] != cut {
			t.Errorf("%s: %d rows, truncated %v", statement, len(rows), a["truncated"])
		}
	}
	// A write is committed though its answer is cut.
	a, err := b.sql(t, newFakeRun(17, 0),
		map[string]any{
			"statement": "INSERT INTO entries SELECT n, 'many' FROM generate_series(1000, 2999) n RETURNING n",
		})
	if err != nil || a["truncated"] != true || a["rowCount"] != 2000.0 ||
		b.pg.run(t, "SELECT count(*) FROM entries WHERE by = 'many'")[0] != "2000" {
		t.Errorf("%v %v", a["rowCount"], err)
	}
	// A row is read whole: one that would fill the memory ends the call.
	for _, readOnly := range []bool{true, false} {
		a, err := b.sql(t, newFakeRun(17, 0),
			map[string]any{"statement": "SELECT repeat('x', 50000000)", "readOnly": readOnly})
		if said, _ := a["error"].(map[string]any); err != nil || said["sqlstate"] != "54000" ||
			a["rolledBack"] != true {
			t.Errorf("a row of 50 MB: %v %v", err, said)
		}
	}
	// The server ends a statement in time, too.
	began := time.Now()
	_, err = b.sql(t, newFakeRun(17, 0), map[string]any{"statement": "SELECT pg_sleep(100)", "timeoutSeconds": 1})
	if err != nil && picket.CodeOf(err) != picket.CodeUpstreamTimeout || time.Since(began) > 50*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}

func sqlReadOnly(t *testing.T, b sqlEnv) {
	h := newFakeRun(1, 1) // far below the mark, which a read does not need
	a, err := b.sql(t, h, map[string]any{"statement": "SELECT 1", "readOnly": true})
	if err != nil || a["rowCount"] != 1.0 || h.req.Effects != picket.EffectsNone {
		t.Errorf("%v %v, effects %s", a, err, h.req.Effects)
	}
	a, err = b.sql(t, h, map[string]any{"statement": "INSERT INTO entries VALUES (60, 'sneaky')", "readOnly": true})
	if said, _ := a["error"].(map[string]any); err != nil || said["sqlstate"] != "25006" {
		t.Errorf("a write in a read-only call: %v %v", a, err)
	}
}

// What a call does to its session does not outlive it.
func sqlSession(t *testing.T, b sqlEnv) {
	h := newFakeRun(1<<30, 3)
	if err := b.write(t, h, "SELECT set_config('search_path', 'marks', false), pg_advisory_lock(7)"); err != nil {
		t.Fatal(err)
	}
	a, err := b.sql(t, h, map[string]any{"statement": "SELECT current_setting('search_path'), pg_try_advisory_lock(7)"})
	if rows, _ := a["rows"].([]any); err != nil || strings.Contains(fmt.Sprint(rows), "marks") {
		t.Errorf("%v %v", a, err)
	}
}
