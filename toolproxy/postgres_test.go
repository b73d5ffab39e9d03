package toolproxy_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/toolproxy"
)

// postgres is a server of this test's own, on a unix socket.
type postgres struct {
	dir string
	url picket.Secret
}

// startPostgres starts the distribution's Postgres. It refuses to run as root,
// so that it is started as another user then.
func startPostgres(t *testing.T) *postgres {
	t.Helper()
	bin := binaries(t)
	// The path of a unix socket is at most 107 bytes long, so not below t.TempDir.
	dir, err := os.MkdirTemp("", "pk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	as := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	name := "picket"
	if os.Getuid() == 0 {
		as.Credential = unprivileged(t)
		if err := os.Chown(dir, int(as.Credential.Uid), int(as.Credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", name, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = as, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	var log bytes.Buffer
	server := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=50", "-c", "max_prepared_transactions=5")
	server.SysProcAttr, server.Dir, server.Stderr, server.Stdout = as, dir, &log, &log
	server.WaitDelay = 5 * time.Second
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT) // at once: nothing in it is worth keeping
		_ = server.Wait()
		if t.Failed() {
			t.Logf("postgres said:\n%s", log.Bytes()[max(0, log.Len()-4000):])
		}
	})
	p := &postgres{dir: dir, url: picket.Secret("host=" + dir + " user=" + name + " dbname=postgres")}
	p.await(t)
	return p
}

func binaries(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if path, err := exec.LookPath("postgres"); err == nil {
		found = append(found, path)
	}
	if len(found) == 0 {
		t.Skip("no Postgres is installed: apt-get install postgresql")
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1])
}

func unprivileged(t *testing.T) *syscall.Credential {
	t.Helper()
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(u.Uid, 10, 32)
			gid, _ := strconv.ParseUint(u.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	t.Skip("Postgres does not run as root, and there is no user postgres or nobody")
	return nil
}

// await waits until the server takes connections.
func (p *postgres) await(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		conn, err := pgconn.Connect(ctx, p.url.Reveal())
		if err == nil {
			_ = conn.Close(ctx)
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("postgres does not start: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// as is how another role connects.
func (p *postgres) as(role string) picket.Secret {
	return picket.Secret(strings.Replace(p.url.Reveal(), "user=picket", "user="+role, 1))
}

// fence makes the marks of the database main.
func (p *postgres) fence(t testing.TB, s *picket.Sealer, table string) {
	t.Helper()
	sql, err := toolproxy.FenceSQL(s, "main", table, "agents")
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
