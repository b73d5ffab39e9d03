package tools

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/internal/web"
)

// fenceMarks is the table that keeps the highest token of each task that has
// written. It is checked and raised in the transaction of the write. So a run
// that was frozen in a transaction cannot commit after another run has written.
//
// The table belongs to a role that agents cannot use. The role of agents may only
// call a function that raises a mark, and the function requires a MAC of the
// proxy over task, token and lease.
type fenceMarks struct {
	table string   // with its schema
	keys  [][]byte // of the MAC, the newest first
}

// writerIdentity is the task, the fencing token and the lease of a write.
type writerIdentity struct {
	task  string
	lease string
	token int64
}

// newFenceMarks is the table of a configured database.
func newFenceMarks(s *seal.Sealer, database, table string) fenceMarks {
	if !strings.Contains(table, ".") {
		table = "public." + table // the search path is the agent's to change
	}
	return fenceMarks{table: table, keys: s.DeriveAll("sql fence\x00" + database)}
}

// macs are those of a writer, one for each key: the database may know only one
// of them while the secret of the proxy is replaced. They are an array of bytea.
func (m fenceMarks) macs(by writerIdentity) string {
	var all []string
	for _, key := range m.keys {
		h := hmac.New(sha256.New, key)
		fmt.Fprintf(h, "%s\n%d\n%s", by.task, by.token, by.lease)
		all = append(all, `"\\x`+hex.EncodeToString(h.Sum(nil))+`"`)
	}
	return "{" + strings.Join(all, ",") + "}"
}

func (m fenceMarks) createSQL() string {
	return "CREATE TABLE IF NOT EXISTS " + m.table +
		" (task text PRIMARY KEY, token bigint NOT NULL, lease text NOT NULL, at timestamptz NOT NULL)"
}

// raiseSQL is accepted if the token is larger than the mark, or equal to it with the
// same lease. The row stays locked until the transaction ends.
func (m fenceMarks) raiseSQL() string {
	return "INSERT INTO " + m.table + " AS mark (task, token, lease, at) VALUES ($1, $2, $3, now()) " +
		"ON CONFLICT (task) DO UPDATE SET token = excluded.token, lease = excluded.lease, at = excluded.at " +
		"WHERE mark.token < excluded.token OR (mark.token = excluded.token AND mark.lease = excluded.lease)"
}

// callSQL raises a mark as the role of agents. The casts name one function whatever
// others of that name an agent has made.
func (m fenceMarks) callSQL() string {
	return "SELECT " + m.table +
		"_raise($1::pg_catalog.text, $2::pg_catalog.int8, $3::pg_catalog.text, $4::pg_catalog.bytea[])"
}

// Answers of the function.
const (
	markRaised = "raised"
	markStale  = "stale"
	markForged = "forged"
)

// raiseArgs are those of call.
func (m fenceMarks) raiseArgs(by writerIdentity) [][]byte {
	return [][]byte{[]byte(by.task), []byte(strconv.FormatInt(by.token, 10)), []byte(by.lease), []byte(m.macs(by))}
}

// setupSQL is the SQL that creates the tables and the function. It must run as a role
// that agents do not have. Running it again adds a new key and keeps the marks. A
// table that belongs to another role may have triggers of an agent, so it is
// renamed and never used.
func (m fenceMarks) setupSQL(role string) string {
	var keys []string
	for _, key := range m.keys {
		inner, outer := hmacPads(key)
		keys = append(keys, fmt.Sprintf(`('\x%x', '\x%x')`, inner, outer))
	}
	return strings.NewReplacer("{table}", m.table, "{role}", quoteName(role), "{create}", m.createSQL(), "{keys}",
		strings.Join(keys, ", "),
		"{schema}", m.table[:strings.Index(m.table, ".")], "{name}", m.table[strings.Index(m.table, ".")+1:],
		"{raise}", strings.NewReplacer("$1", "the_task", "$2", "the_token", "$3", "the_lease").Replace(m.raiseSQL())).
		Replace(setupTemplate)
}

const setupTemplate = `BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
DO $picket$
DECLARE
  found record;
BEGIN
  IF to_regnamespace('{schema}') IS NULL THEN
    CREATE SCHEMA {schema};
  END IF;
  FOR found IN SELECT c.relname, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = '{schema}' AND c.relname IN ('{name}', '{name}_key')
      AND (c.relkind <> 'r' OR c.relowner <> (SELECT oid FROM pg_roles WHERE rolname = current_user)) LOOP
    EXECUTE format('ALTER %s {schema}.%I RENAME TO %I', CASE found.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END,
      found.relname, found.relname || '_old_' || to_char(clock_timestamp(), 'YYYYMMDDHH24MISSUS'));
  END LOOP;
  FOR found IN SELECT p.oid::regprocedure AS called FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
      WHERE n.nspname = '{schema}' AND p.proname = '{name}_raise'
      AND p.proowner <> (SELECT oid FROM pg_roles WHERE rolname = current_user) LOOP
    EXECUTE format('DROP ROUTINE %s', found.called);
  END LOOP;
END $picket$;
{create};
CREATE TABLE IF NOT EXISTS {table}_key (inner_key bytea PRIMARY KEY, outer_key bytea NOT NULL);
REVOKE ALL ON {table}, {table}_key FROM PUBLIC, {role};
INSERT INTO {table}_key VALUES {keys} ON CONFLICT DO NOTHING;
CREATE OR REPLACE FUNCTION {table}_raise(the_task text, the_token bigint, the_lease text, macs bytea[]) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $picket$
DECLARE
  message bytea := convert_to(the_task || chr(10) || the_token || chr(10) || the_lease, 'UTF8');
BEGIN
  IF NOT EXISTS (SELECT FROM {table}_key k, unnest(macs) AS mac
      WHERE sha256(mac) = sha256(sha256(k.outer_key || sha256(k.inner_key || message)))) THEN
    RETURN 'forged';
  END IF;
  {raise};
  IF FOUND THEN
    RETURN 'raised';
  END IF;
  RETURN 'stale';
END $picket$;
REVOKE ALL ON FUNCTION {table}_raise(text, bigint, text, bytea[]) FROM PUBLIC;
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT EXECUTE ON FUNCTION {table}_raise(text, bigint, text, bytea[]) TO {role};
COMMIT;
`

// hmacPads are the two blocks of HMAC-SHA-256 of a key that is not longer than one.
func hmacPads(key []byte) (inner, outer []byte) {
	inner, outer = make([]byte, sha256.BlockSize), make([]byte, sha256.BlockSize)
	copy(inner, key)
	copy(outer, key)
	for i := range inner {
		inner[i] ^= 0x36
		outer[i] ^= 0x5c
	}
	return inner, outer
}

func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// FenceSQL returns the SQL that must run in a database before agents can write to
// it through the tool sql. The SQL contains a key that the role of agents must not
// learn. name is the name under tools.sql, and table that of its marks ("" for the
// default).
func FenceSQL(s *seal.Sealer, name, table, role string) (picket.Secret, error) {
	d := Database{Marks: table}
	checked, err := d.marksTable(name)
	if err != nil {
		return "", err
	}
	if role == "" || strings.ContainsRune(role, 0) || len(role) > 63 {
		return "", fmt.Errorf("toolproxy: %q is not a valid name of a Postgres role: write 1 to 63 bytes",
			web.Shortened(role))
	}
	return picket.Secret(newFenceMarks(s, name, checked).setupSQL(role)), nil
}

// fenceProblemsSQL asks a database what its role could do to the marks.
const fenceProblemsSQL = `SELECT problem FROM (VALUES
  ('is a superuser', (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)),
  ('may create roles', (SELECT rolcreaterole FROM pg_roles WHERE rolname = current_user)),
  ('has no function {table}_raise to call', coalesce(NOT has_function_privilege(to_regprocedure('{table}_raise(text,bigint,text,bytea[])'), 'EXECUTE'), true)),
  ('owns the schema of {table}, or can act as its owner', (SELECT bool_or(pg_has_role(nspowner, 'MEMBER')) FROM pg_namespace WHERE nspname = '{schema}')),
  ('owns {table} or what belongs to it, or can act as the owner', (SELECT bool_or(pg_has_role(relowner, 'MEMBER')) FROM pg_class
    WHERE oid IN (to_regclass('{table}'), to_regclass('{table}_key')))
    OR (SELECT bool_or(pg_has_role(proowner, 'MEMBER')) FROM pg_proc WHERE oid = to_regprocedure('{table}_raise(text,bigint,text,bytea[])'))),
  ('may write {table}', has_table_privilege(to_regclass('{table}'), 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER, REFERENCES')
    OR has_any_column_privilege(to_regclass('{table}'), 'INSERT, UPDATE, REFERENCES')),
  ('may read or write {table}_key', has_table_privilege(to_regclass('{table}_key'), 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER, REFERENCES')
    OR has_any_column_privilege(to_regclass('{table}_key'), 'SELECT, INSERT, UPDATE, REFERENCES'))
) AS found (problem, true_here) WHERE true_here`

// FenceProblems connects to a database as agents do, and returns what their role
// could do to the fence marks. Each text continues a sentence that begins with
// "the role of agents".
func FenceProblems(ctx context.Context, name string, d Database) ([]string, error) {
	table, err := d.marksTable(name)
	if err != nil {
		return nil, err
	}
	m := newFenceMarks(&seal.Sealer{}, name, table)
	config, err := pgconn.ParseConfig(d.URL.Reveal())
	if err != nil {
		return nil, fmt.Errorf("toolproxy: the URL of the database %s cannot be read", name)
	}
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("toolproxy: the database %s does not answer", name)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	ask := strings.NewReplacer("{table}", m.table, "{schema}", m.table[:strings.Index(m.table, ".")]).
		Replace(fenceProblemsSQL)
	results, err := conn.Exec(ctx, "SET search_path = pg_catalog, pg_temp; "+ask).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("toolproxy: ask the database %s: %w", name, err)
	}
	var found []string
	for _, row := range results[1].Rows {
		found = append(found, string(row[0]))
	}
	return found, nil
}
