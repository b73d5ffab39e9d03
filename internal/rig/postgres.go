package rig

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
)

// Postgres is a server of one test, on a unix socket.
type Postgres struct {
	Dir string
	URL string // of the superuser "picket"; anybody may connect as any role
}

// As is how another role connects.
func (p *Postgres) As(role string) string {
	return strings.Replace(p.URL, "user=picket", "user="+role, 1)
}

// StartPostgres starts the distribution's Postgres, or skips the test where there is
// none. Postgres refuses to run as root, so then it is started as another user.
func StartPostgres(t *testing.T) *Postgres {
	t.Helper()
	bin := postgresBinaries(t)
	// The path of a unix socket is at most 107 bytes long, so not below t.TempDir.
	dir, err := os.MkdirTemp("", "pk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	as := dieWithTest()
	name := "picket"
	if os.Getuid() == 0 {
		as.Credential = unprivileged(t)
		if err := os.Chown(dir, int(as.Credential.Uid), int(as.Credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", name, "-A", "trust", "-E", "UTF8",
		"--locale=C", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = as, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	var log bytes.Buffer
	server := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=", "-c",
		"fsync=off", "-c", "max_connections=50", "-c", "max_prepared_transactions=5")
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
	p := &Postgres{Dir: dir, URL: "host=" + dir + " user=" + name + " dbname=postgres"}
	p.await(t)
	return p
}

func postgresBinaries(t *testing.T) string {
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
func (p *Postgres) await(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		conn, err := pgconn.Connect(ctx, p.URL)
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
