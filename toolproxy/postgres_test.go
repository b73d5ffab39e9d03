package toolproxy_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/toolproxy/tools"
)

// postgres is a server of this test's own.
type postgres struct {
	*rig.Postgres
	url picket.Secret
}

func startPostgres(t *testing.T) *postgres {
	t.Helper()
	p := rig.StartPostgres(t)
	return &postgres{p, picket.Secret(p.URL)}
}

// as is how another role connects.
func (p *postgres) as(role string) picket.Secret { return picket.Secret(p.As(role)) }

// fence makes the marks of the database main.
func (p *postgres) fence(t testing.TB, s *seal.Sealer, table string) {
	t.Helper()
	sql, err := tools.FenceSQL(s, "main", table, "agents")
	if err != nil {
		t.Fatal(err)
	}
	p.run(t, sql.Reveal())
}

// run executes SQL past the proxy and returns the first column of all rows.
func (p *postgres) run(t testing.TB, sql string) (out []string) {
	t.Helper()
	conn := p.connect(t)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	results, err := conn.Exec(t.Context(), sql).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	for _, r := range results {
		for _, row := range r.Rows {
			out = append(out, string(row[0]))
		}
	}
	return out
}

// connectAs connects as another role until the test ends.
func (p *postgres) connectAs(t testing.TB, role string) *pgconn.PgConn {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), p.as(role).Reveal())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func (p *postgres) connect(t testing.TB) *pgconn.PgConn {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), p.url.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
