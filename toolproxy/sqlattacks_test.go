package toolproxy_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/toolproxy/tools"
)

// theMarks are all marks and who owns what belongs to them.
func (p *postgres) theMarks(t *testing.T) []string {
	t.Helper()
	return p.run(t, `SELECT task || ' ' || token || ' ' || lease FROM public.picket_fence ORDER BY 1;
		SELECT relname || ' ' || relowner::regrole || ' ' || relhastriggers || relhasrules FROM pg_class WHERE relname LIKE 'picket_fence%' AND relkind = 'r' ORDER BY 1;
		SELECT proname || ' ' || proowner::regrole || ' ' || md5(prosrc) FROM pg_proc WHERE oid = 'public.picket_fence_raise(text,bigint,text,bytea[])'::regprocedure;
		SELECT count(*) || ' keys' FROM public.picket_fence_key`)
}

// An agent runs whatever statement it likes under its own valid lease, and can
// neither change a mark nor what guards it.
func sqlAttacks(t *testing.T, b sqlEnv) {
	h := newFakeRun(17, 0)
	if err := b.write(t, h, "INSERT INTO entries VALUES (600, 'holder')"); err != nil {
		t.Fatal(err)
	}
	b.pg.run(t, "INSERT INTO picket_fence VALUES ('default/other', 5, 'run_other', now())")
	before := b.pg.theMarks(t)
	do := func(sql string) string {
		return "DO $do$ BEGIN EXECUTE '" + strings.ReplaceAll(sql, "'", "''") + "'; END $do$"
	}
	hidden := strings.NewReplacer("picket_fence", `U&"picket\005ffence"`, "FENCE_KEY", `U&"picket\005ffence_key"`)
	for _, statement := range []string{
		"UPDATE picket_fence SET token = 1", "UPDATE picket_fence SET token = 9000000000000000000",
		"DELETE FROM picket_fence", "INSERT INTO picket_fence VALUES ('default/x', 1, 'l', now())",
		"TRUNCATE picket_fence", "LOCK TABLE picket_fence IN ACCESS EXCLUSIVE MODE",
		"SELECT * FROM picket_fence FOR UPDATE", "DROP TABLE picket_fence CASCADE",
		"ALTER TABLE picket_fence RENAME TO x", "ALTER TABLE picket_fence OWNER TO agents",
		"ALTER TABLE picket_fence DISABLE TRIGGER ALL", "ALTER TABLE picket_fence DROP CONSTRAINT picket_fence_pkey",
		"GRANT ALL ON picket_fence TO agents", "COMMENT ON TABLE picket_fence IS 'x'",
		"CREATE INDEX ON picket_fence (lease)",
		"CREATE TRIGGER t BEFORE INSERT OR UPDATE ON picket_fence FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
		"CREATE RULE r AS ON INSERT TO picket_fence DO INSTEAD NOTHING",
		"CREATE TABLE child () INHERITS (picket_fence)", "CREATE TABLE refers (task text REFERENCES picket_fence)",
		"SELECT * FROM FENCE_KEY", "DELETE FROM FENCE_KEY", "INSERT INTO FENCE_KEY VALUES ('x', 'y')",
		"DROP TABLE FENCE_KEY",
	} {
		if err := b.write(t, h, do(hidden.Replace(statement))); err == nil {
			t.Errorf("done: %s", statement)
		}
	}
	for _, statement := range []string{
		do("CREATE OR REPLACE FUNCTION public.picket\u005ffence_raise(text, bigint, text, bytea[]) RETURNS text LANGUAGE sql AS $f$ SELECT 'raised'::text $f$"),
		"DROP FUNCTION public." + `U&"picket\005ffence_raise"(text,bigint,text,bytea[])`,
		"ALTER FUNCTION public." + `U&"picket\005ffence_raise"(text,bigint,text,bytea[]) OWNER TO agents`,
		"ALTER FUNCTION public." + `U&"picket\005ffence_raise"(text,bigint,text,bytea[]) SET search_path = evil`,
		"ALTER FUNCTION public." + `U&"picket\005ffence_raise"(text,bigint,text,bytea[]) SECURITY INVOKER`,
		do("SET ROLE picket"), do("SET SESSION AUTHORIZATION picket"), do("SET session_replication_role = replica"),
		do("ALTER ROLE agents SUPERUSER"), do("GRANT picket TO agents"),
		"ALTER DEFAULT PRIVILEGES FOR ROLE picket GRANT ALL ON TABLES TO agents",
		"ALTER SCHEMA public RENAME TO private", "DROP SCHEMA public CASCADE", "DROP OWNED BY picket",
		"REASSIGN OWNED BY picket TO agents",
		do("SET TRANSACTION READ WRITE; COMMIT"), "CREATE EXTENSION dblink",
		"ALTER SYSTEM SET session_preload_libraries = 'x'",
		do("PREPARE TRANSACTION 'mine'"), do("ROLLBACK TO SAVEPOINT s"), do("SAVEPOINT s"),
	} {
		if err := b.write(t, h, statement); err == nil {
			t.Errorf("done: %s", statement)
		}
	}
	if after := b.pg.theMarks(t); !slices.Equal(after, before) {
		t.Errorf("the marks were\n%s\nand are\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	// A block that undoes what is done in it does not undo the raised mark.
	next := newFakeRun(18, 1)
	if err := b.write(t, next,
		"DO $$ BEGIN BEGIN RAISE EXCEPTION 'undo'; EXCEPTION WHEN OTHERS THEN NULL; END; END $$"); err != nil {
		t.Error(err)
	}
	if err := b.write(t, h, "INSERT INTO entries VALUES (601, 'stale')"); picket.CodeOf(err) != picket.CodeStaleFence {
		t.Errorf("a stale write: %v", err)
	}
	// A read cannot become a write.
	for _, statement := range []string{"DO $$ BEGIN SET TRANSACTION READ WRITE; INSERT INTO entries VALUES (602, 'x'); END $$",
		"DO $$ BEGIN PERFORM set_config('transaction_read_only', 'off', true); INSERT INTO entries VALUES (602, 'x'); END $$"} {
		_, _ = b.sql(t, h, map[string]any{"statement": statement, "readOnly": true})
	}
	if got := b.pg.run(t, "SELECT n FROM entries WHERE n IN (601, 602)"); len(got) != 0 {
		t.Errorf("written: %v", got)
	}
}

// forge calls the function as an agent would, and says what it answered.
func (b sqlEnv) forge(t *testing.T, h *fakeRun, task string, token int64, lease, macs string) string {
	t.Helper()
	statement := "SELECT public." + `U&"picket\005ffence_raise"` +
		fmt.Sprintf("('%s'::pg_catalog.text, %d::pg_catalog.int8, '%s'::pg_catalog.text, '%s'::pg_catalog.bytea[])",
			task, token, lease, macs)
	a, err := b.sql(t, h, map[string]any{"statement": statement})
	rows, _ := a["rows"].([]any)
	if err != nil || len(rows) != 1 {
		t.Fatalf("%v %v", a, err)
	}
	return text(rows[0].([]any)[0])
}

// markMACs are the MACs of a writer for a database as Postgres reads an array of them.
func markMACs(s *seal.Sealer, database, task string, token int64, lease string) string {
	var all []string
	for _, key := range s.DeriveAll("sql fence\x00" + database) {
		h := hmac.New(sha256.New, key)
		fmt.Fprintf(h, "%s\n%d\n%s", task, token, lease)
		all = append(all, fmt.Sprintf(`"\\x%x"`, h.Sum(nil)))
	}
	return "{" + strings.Join(all, ",") + "}"
}

// The function takes a MAC for the task, the token and the lease that it was made
// for, and for nothing else. An old one neither lowers a mark nor takes it over.
func sqlForged(t *testing.T, b sqlEnv) {
	lease, of := newFakeRun(17, 0).held.RunID, "default/"+aTask
	mine := markMACs(newSealer(t), "main", of, 17, lease)
	if got := b.forge(t, newFakeRun(17, 0), of, 17, lease, mine); got != "raised" {
		t.Fatalf("the right MAC: %s", got)
	}
	other, err := seal.New(bytes.Repeat([]byte{8}, 32))
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]string{
		"another token":    b.forge(t, newFakeRun(17, 0), of, 18, lease, mine),
		"another task":     b.forge(t, newFakeRun(17, 0), "default/task_other", 17, lease, mine),
		"another lease":    b.forge(t, newFakeRun(17, 0), of, 17, "run_other", mine),
		"no MAC":           b.forge(t, newFakeRun(17, 0), of, 18, lease, "{}"),
		"an empty MAC":     b.forge(t, newFakeRun(17, 0), of, 18, lease, `{""}`),
		"a null":           b.forge(t, newFakeRun(17, 0), of, 18, lease, "{NULL}"),
		"a moved boundary": b.forge(t, newFakeRun(17, 0), of+"\n17", 17, lease, mine),
		"another key": b.forge(t, newFakeRun(17, 0), of, 18, lease,
			markMACs(other, "main", of, 18, lease)),
		"another database": b.forge(t, newFakeRun(17, 0), of, 18, lease,
			markMACs(newSealer(t), "second", of, 18, lease)),
	} {
		if got != "forged" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if err := b.write(t, newFakeRun(18, 1), "INSERT INTO entries VALUES (610, 'next')"); err != nil {
		t.Fatal(err)
	}
	conn := b.pg.connectAs(t, "agents")
	for name, call := range map[string]string{
		"the old MAC":                mine,
		"with the token of the next": markMACs(newSealer(t), "main", of, 17, lease),
	} {
		sql := fmt.Sprintf("SELECT public.picket_fence_raise('%s', 17, '%s', '%s')", of, lease, call)
		res, err := conn.Exec(t.Context(), sql).ReadAll()
		if err != nil || string(res[0].Rows[0][0]) != "stale" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := b.pg.run(t, "SELECT token FROM picket_fence WHERE task = '"+of+"'"); !slices.Equal(got, []string{"18"}) {
		t.Errorf("the mark is %v", got)
	}
}

// What an agent puts in the way of names leads the proxy nowhere else.
func sqlShadows(t *testing.T, b sqlEnv) {
	if err := b.write(t, newFakeRun(18, 1), "INSERT INTO entries VALUES (620, 'next')"); err != nil {
		t.Fatal(err)
	}
	fake := "(text, text, text, text) RETURNS text LANGUAGE sql AS $$ SELECT 'raised'::text $$"
	conn := b.pg.connectAs(t, "agents")
	for _, sql := range []string{
		"CREATE FUNCTION public.picket_fence_raise" + fake,
		"CREATE FUNCTION public.picket_fence_raise(text, int, text, bytea[]) RETURNS text LANGUAGE sql AS $$ SELECT 'raised'::text $$",
		"CREATE FUNCTION public.picket_fence_raise(VARIADIC text[]) RETURNS text LANGUAGE sql AS $$ SELECT 'raised'::text $$",
		"CREATE FUNCTION public.sha256(bytea) RETURNS bytea LANGUAGE sql AS $$ SELECT ''::bytea $$",
		"CREATE FUNCTION public.convert_to(text, name) RETURNS bytea LANGUAGE sql AS $$ SELECT ''::bytea $$",
		"CREATE FUNCTION public.yes(bytea, bytea) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$",
		"CREATE OPERATOR public.= (LEFTARG = bytea, RIGHTARG = bytea, FUNCTION = public.yes)",
		"CREATE DOMAIN public.int8 AS text", "ALTER ROLE agents SET search_path = public, pg_catalog",
		"ALTER ROLE agents SET default_transaction_isolation = 'serializable'",
	} {
		if _, err := conn.Exec(t.Context(), sql).ReadAll(); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	defer b.pg.run(t,
		"ALTER ROLE agents RESET ALL; DROP FUNCTION public.picket_fence_raise(text,text,text,text), public.picket_fence_raise(text,int,text,bytea[]), public.picket_fence_raise(text[]), "+
			"public.sha256, public.convert_to, public.yes CASCADE; DROP DOMAIN public.int8")
	if err := b.write(t, newFakeRun(17, 0),
		"INSERT INTO entries VALUES (621, 'stale')"); picket.CodeOf(err) != picket.CodeStaleFence {
		t.Errorf("a stale write: %v", err)
	}
	if got := b.forge(t, newFakeRun(18, 1), "default/"+aTask, 19, "run_forged", `{"\\x00"}`); got != "forged" {
		t.Errorf("a forged MAC: %s", got)
	}
	if err := b.write(t, newFakeRun(19, 2), "INSERT INTO entries VALUES (622, 'next')"); err != nil {
		t.Errorf("the next holder: %v", err)
	}
	for _, sql := range []string{"SET search_path = pg_temp, public; CREATE TEMP TABLE picket_fence (task text PRIMARY KEY, token bigint, lease text, at timestamptz)",
		"CREATE TEMP TABLE picket_fence_key AS SELECT '\\x00'::bytea AS inner_key, '\\x00'::bytea AS outer_key"} {
		if _, err := conn.Exec(t.Context(), sql).ReadAll(); err != nil {
			t.Fatal(err)
		}
	}
	res, err := conn.Exec(t.Context(),
		`SELECT public.picket_fence_raise('default/`+aTask+`', 99::bigint, 'x', ARRAY['\x00'::bytea])`).ReadAll()
	if err != nil || string(res[0].Rows[0][0]) != "forged" {
		t.Errorf("with temporary tables: %v", err)
	}
}

// While the secret of the proxy is replaced the database takes the MACs of both
// keys. A proxy with another secret is told what to do.
func sqlKeys(t *testing.T, b sqlEnv) {
	first, second := bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{9}, 32)
	write := func(n int, keys ...[]byte) error {
		s, err := seal.New(keys...)
		if err != nil {
			t.Fatal(err)
		}
		return newSQLEnvOf(t, s, b.pg, tools.Database{}).
			write(t, newFakeRun(17, 0), fmt.Sprintf("INSERT INTO entries VALUES (%d, 'key')", n))
	}
	if err := write(630, second); picket.CodeOf(err) != picket.CodeUpstream ||
		!strings.Contains(fmt.Sprint(err), "does not have the key") {
		t.Errorf("with an unknown key: %v", err)
	}
	if err := write(631, second, first); err != nil {
		t.Errorf("while the secret is replaced: %v", err)
	}
	s, err := seal.New(second)
	if err != nil {
		t.Fatal(err)
	}
	b.pg.fence(t, s, "")
	if err := write(632, second); err != nil {
		t.Errorf("with the new key: %v", err)
	}
	if err := write(633, first); err != nil {
		t.Errorf("with the old key, which is still there: %v", err)
	}
}

// What the role of agents could do to the marks is found.
func sqlProblems(t *testing.T, b sqlEnv) {
	ask := func(db tools.Database) []string {
		t.Helper()
		found, err := tools.FenceProblems(t.Context(), "main", db)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if got := ask(tools.Database{URL: b.pg.as("agents")}); len(got) != 0 {
		t.Errorf("as set up: %v", got)
	}
	for sql, undo := range map[string]string{
		"GRANT UPDATE ON picket_fence TO agents":                    "REVOKE UPDATE ON picket_fence FROM agents",
		"GRANT UPDATE (token) ON picket_fence TO PUBLIC":            "REVOKE UPDATE (token) ON picket_fence FROM PUBLIC",
		"ALTER TABLE picket_fence OWNER TO agents":                  "ALTER TABLE picket_fence OWNER TO picket; REVOKE ALL ON picket_fence FROM agents",
		"GRANT SELECT ON picket_fence_key TO agents":                "REVOKE SELECT ON picket_fence_key FROM agents",
		"ALTER SCHEMA public OWNER TO agents":                       "ALTER SCHEMA public OWNER TO pg_database_owner; GRANT CREATE ON SCHEMA public TO agents",
		"ALTER DATABASE postgres OWNER TO agents":                   "ALTER DATABASE postgres OWNER TO picket",
		"ALTER ROLE agents CREATEROLE":                              "ALTER ROLE agents NOCREATEROLE",
		"ALTER ROLE agents SUPERUSER":                               "ALTER ROLE agents NOSUPERUSER",
		"GRANT picket TO agents":                                    "REVOKE picket FROM agents",
		"ALTER FUNCTION picket_fence_raise OWNER TO agents":         "ALTER FUNCTION picket_fence_raise OWNER TO picket; GRANT EXECUTE ON FUNCTION picket_fence_raise TO agents",
		"REVOKE EXECUTE ON FUNCTION picket_fence_raise FROM agents": "GRANT EXECUTE ON FUNCTION picket_fence_raise TO agents",
	} {
		b.pg.run(t, sql)
		if got := ask(tools.Database{URL: b.pg.as("agents")}); len(got) == 0 {
			t.Errorf("not found: %s", sql)
		}
		b.pg.run(t, undo)
	}
	if got := ask(tools.Database{URL: b.pg.as("agents")}); len(got) != 0 {
		t.Errorf("afterwards: %v", got)
	}
	if got := ask(tools.Database{URL: b.pg.as("agents"), Marks: "missing"}); len(got) != 1 ||
		!strings.Contains(got[0], "no function") {
		t.Errorf("without marks: %v", got)
	}
}

// A table that an agent's role owns, with whatever it has put there, is set aside
// and not used.
func sqlMigration(t *testing.T, b sqlEnv) {
	conn := b.pg.connectAs(t, "agents")
	if _, err := conn.Exec(t.Context(),
		`CREATE TABLE old_fence (task text PRIMARY KEY, token bigint NOT NULL, lease text NOT NULL, at timestamptz NOT NULL);
		CREATE FUNCTION steal() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'ALTER ROLE agents SUPERUSER'; RETURN NULL; END $$;
		CREATE TRIGGER t BEFORE INSERT ON old_fence FOR EACH ROW EXECUTE FUNCTION steal();
		CREATE VIEW old_fence_key AS SELECT steal.* FROM (SELECT 1) steal;
		CREATE FUNCTION old_fence_raise(text, bigint, text, bytea[]) RETURNS text LANGUAGE sql AS $$ SELECT 'raised'::text $$`).ReadAll(); err != nil {
		t.Fatal(err)
	}
	b.pg.fence(t, newSealer(t), "old_fence")
	b.pg.fence(t, newSealer(t), "old_fence") // again: it changes nothing
	db := tools.Database{URL: b.pg.as("agents"), Marks: "old_fence"}
	if err := newSQLEnv(t, b.pg, db).
		write(t, newFakeRun(17, 0), "INSERT INTO entries VALUES (640, 'moved')"); err != nil {
		t.Error(err)
	}
	if found, err := tools.FenceProblems(t.Context(), "main", db); err != nil || len(found) != 0 {
		t.Errorf("%v %v", found, err)
	}
	if got := b.pg.run(t,
		"SELECT rolsuper FROM pg_roles WHERE rolname = 'agents'; SELECT count(*) FROM pg_class WHERE relname LIKE 'old\\_fence%\\_old\\_%' AND relkind IN ('r', 'v')"); !slices.Equal(got, []string{"f", "2"}) {
		t.Errorf("%v", got)
	}
}
