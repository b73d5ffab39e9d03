package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// errNoPostgres says that there is nothing to run River on.
var errNoPostgres = errors.New("no PostgreSQL")

// postgres is a PostgreSQL server of our own on a unix socket, set up as initdb
// leaves it: fsync is on.
type postgres struct {
	dir     string
	version string
	process *exec.Cmd
	pool    *pgxpool.Pool
}

// startPostgres makes a cluster in a temporary folder and starts it.
func startPostgres(ctx context.Context) (*postgres, error) {
	initdb, err := findPostgres("initdb")
	if err != nil {
		return nil, err
	}
	server, err := findPostgres("postgres")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "picketbench")
	if err != nil {
		return nil, fmt.Errorf("make folder for PostgreSQL: %w", err)
	}
	p := &postgres{dir: dir}
	as, err := unprivileged(dir)
	if err != nil {
		p.stop()
		return nil, err
	}
	data := filepath.Join(dir, "data")
	made := exec.CommandContext(ctx, initdb, "-D", data, "-U", "bench", "-A", "trust", "--no-sync", "--locale=C", "-E",
		"UTF8")
	made.SysProcAttr, made.Dir = as, dir
	if text, err := made.CombinedOutput(); err != nil {
		p.stop()
		return nil, fmt.Errorf("initdb: %w: %s", err, text)
	}
	p.process = exec.Command(server, "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "log_min_messages=fatal")
	p.process.SysProcAttr, p.process.Dir = as, dir
	if err := p.process.Start(); err != nil {
		p.stop()
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	if err := p.connect(ctx); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// findPostgres finds a program of the newest PostgreSQL installed.
func findPostgres(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + program)
	if err != nil || len(found) == 0 {
		return "", errNoPostgres
	}
	return slices.MaxFunc(found, func(a, b string) int { return majorOf(a) - majorOf(b) }), nil
}

func majorOf(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// unprivileged gives the folder to a user without rights when we are root, as
// which PostgreSQL does not start. The processes get a group of their own, so
// that Ctrl-C ends us first, then them.
func unprivileged(dir string) (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() != 0 {
		return attr, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, fmt.Errorf("find an unprivileged user: %w", err)
		}
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		return nil, fmt.Errorf("give folder to %s: %w", u.Username, err)
	}
	return attr, nil
}

// connect waits until the server answers.
func (p *postgres) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var err error
	if p.pool, err = pgxpool.New(ctx, "host="+p.dir+" user=bench dbname=postgres"); err != nil {
		return fmt.Errorf("open pool: %w", err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.pool.QueryRow(ctx, "show server_version").Scan(&p.version)
		if err == nil {
			p.version, _, _ = strings.Cut(p.version, " ")
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL does not answer: %w", err)
		case <-tick.C:
		}
	}
}

// stop ends the server and removes its files.
func (p *postgres) stop() {
	if p.pool != nil {
		p.pool.Close()
	}
	if p.process != nil && p.process.Process != nil {
		p.process.Process.Signal(syscall.SIGQUIT) // ends its own processes at once
		p.process.Wait()
	}
	os.RemoveAll(p.dir)
}
