package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// DurableServer is a redis-server whose append-only file is synced before every
// answer, and to which everything can be done that makes a store forget.
// Nothing is ever rewritten in the file, so a copy of it is the state of a
// moment and a shorter file is an earlier state.
type DurableServer struct {
	tb   testing.TB
	dir  string
	args []string
	cmd  *exec.Cmd
	out  bytes.Buffer

	mu sync.Mutex
	up chan struct{} // closed while the server answers
}

// StartDurableServer starts a server on an empty directory; it ends with the test.
// args are further arguments of redis-server and stay the same at every start.
func StartDurableServer(tb testing.TB, args ...string) *DurableServer {
	tb.Helper()
	SkipShort(tb)
	// t.TempDir carries the test's name, which can be too long for a socket.
	dir, err := os.MkdirTemp("", "pk")
	if err != nil {
		tb.Fatal(err)
	}
	d := &DurableServer{tb: tb, dir: dir, args: args, up: make(chan struct{})}
	tb.Cleanup(func() {
		d.Kill()
		_ = os.RemoveAll(dir)
	})
	d.Start()
	return d
}

// Start starts the server on the files that are there, repaired as Repair does,
// and returns when it has read them.
func (d *DurableServer) Start() {
	d.tb.Helper()
	d.Repair()
	d.StartAsIs()
}

// Repair cuts the file of changes back to where it is whole, as the operations
// manual tells: a redis-server that finds half a transaction at its end cuts
// away only the half command, and applies the rest of it at the start after.
func (d *DurableServer) Repair() {
	d.tb.Helper()
	manifest := filepath.Join(d.files(), "appendonly.aof.manifest")
	if _, err := os.Stat(manifest); err != nil {
		return
	}
	cmd := exec.Command("redis-check-aof", "--fix", manifest)
	cmd.Stdin = strings.NewReader("y\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		d.tb.Fatalf("redis-check-aof: %v\n%s", err, out)
	}
}

// StartAsIs is Start without the repair.
func (d *DurableServer) StartAsIs() {
	d.tb.Helper()
	d.out.Reset()
	d.cmd = exec.Command("redis-server",
		append([]string{"--port", "0", "--unixsocket", d.socket(), "--dir", d.dir, "--save", "",
			"--appendonly", "yes", "--appendfsync", "always", "--aof-load-truncated", "yes",
			"--auto-aof-rewrite-percentage", "0",
			"--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0"}, d.args...)...)
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.out
	if err := d.cmd.Start(); err != nil {
		d.tb.Fatalf("start redis-server (apt-get install redis-server): %v", err)
	}
	if err := answering(Store{
		Redis: redis.UniversalOptions{Addrs: []string{"127.0.0.1:6379"}, Dialer: d.dial},
	}); err != nil {
		d.Kill()
		d.tb.Fatalf("redis-server does not answer: %v\n%s", err, d.out.String())
	}
	d.mu.Lock()
	close(d.up)
	d.mu.Unlock()
}

// Kill ends the server with SIGKILL. Killing a dead one is harmless.
func (d *DurableServer) Kill() {
	if d.cmd == nil {
		return
	}
	d.mu.Lock()
	select {
	case <-d.up:
		d.up = make(chan struct{})
	default:
	}
	d.mu.Unlock()
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
	d.cmd = nil
}

// Store is where the server is, at every start. A client that dials while it is down waits for it
// instead of being refused. A client that was refused often pauses for a second, which would slow a
// test of many losses down.
func (d *DurableServer) Store() Store {
	return Store{Redis: redis.UniversalOptions{
		Addrs:  []string{"127.0.0.1:6379"},
		Dialer: d.dialWhenUp,
	}}
}

func (d *DurableServer) dialWhenUp(ctx context.Context, network, address string) (net.Conn, error) {
	late := time.NewTimer(10 * time.Second) // not every caller has a deadline
	defer late.Stop()
	for {
		d.mu.Lock()
		open := d.up
		d.mu.Unlock()
		select {
		case <-open:
		case <-ctx.Done():
			return nil, fmt.Errorf("dial a server that is down: %w", ctx.Err())
		case <-late.C:
			return nil, fmt.Errorf("dial a server that is down: %w", os.ErrDeadlineExceeded)
		}
		c, err := d.dial(ctx, network, address)
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) {
			return c, err
		}
		time.Sleep(time.Millisecond) // it is being killed just now
	}
}

func (d *DurableServer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", d.socket())
}

func (d *DurableServer) socket() string { return filepath.Join(d.dir, "s") }

func (d *DurableServer) files() string { return filepath.Join(d.dir, "appendonlydir") }

// Snapshot copies the append-only files into a directory, which is made. It
// may be done while the server writes: the copy then ends with some change,
// perhaps in the middle of one, as after a loss of power.
func (d *DurableServer) Snapshot(to string) {
	d.tb.Helper()
	copyFiles(d.tb, d.files(), to)
}

// Restore puts a snapshot in the place of the files. The server must be down.
func (d *DurableServer) Restore(from string) {
	d.tb.Helper()
	d.Empty()
	copyFiles(d.tb, from, d.files())
}

// Empty deletes all files. The server must be down.
func (d *DurableServer) Empty() {
	d.tb.Helper()
	if d.cmd != nil {
		d.tb.Fatal("the files of a running server are not to be touched")
	}
	if err := os.RemoveAll(d.files()); err != nil {
		d.tb.Fatal(err)
	}
}

// Rewind puts an earlier state under the running server, which goes on as the
// same process: what a virtual machine that is set back to an earlier moment
// does, or data that is loaded into a server. pick is as in CutTail. The server
// needs "--enable-debug-command", "yes".
func (d *DurableServer) Rewind(pick func(size int64) int64) {
	d.tb.Helper()
	c := redis.NewClient(&redis.Options{Dialer: d.dial, MaxRetries: -1})
	defer c.Close()
	do := func(args ...any) {
		d.tb.Helper()
		if err := c.Do(context.Background(), args...).Err(); err != nil {
			d.tb.Fatalf("%v: %v", args, err)
		}
	}
	do("CLIENT", "PAUSE", 10_000, "WRITE") // nothing may be appended meanwhile
	d.cut(pick)
	d.Repair()
	do("DEBUG", "LOADAOF")
	do("CLIENT", "UNPAUSE")
}

// CutTail shortens the file of changes to a length chosen by pick, which gets
// the whole length, and returns how many bytes are gone. The server must be
// down.
func (d *DurableServer) CutTail(pick func(size int64) int64) int64 {
	d.tb.Helper()
	if d.cmd != nil {
		d.tb.Fatal("the files of a running server are not to be touched")
	}
	return d.cut(pick)
}

// Size is the length of the file of changes, in bytes.
func (d *DurableServer) Size() int64 {
	d.tb.Helper()
	info, err := os.Stat(d.changes())
	if err != nil {
		d.tb.Fatal(err)
	}
	return info.Size()
}

func (d *DurableServer) cut(pick func(size int64) int64) int64 {
	d.tb.Helper()
	size := d.Size()
	keep := pick(size)
	if err := os.Truncate(d.changes(), keep); err != nil {
		d.tb.Fatal(err)
	}
	return size - keep
}

// changes is the last file of changes.
func (d *DurableServer) changes() string {
	d.tb.Helper()
	found, err := filepath.Glob(filepath.Join(d.files(), "*.incr.aof"))
	if err != nil || len(found) == 0 {
		d.tb.Fatalf("no file of changes in %s: %v", d.files(), err)
	}
	slices.Sort(found)
	return found[len(found)-1]
}

func copyFiles(tb testing.TB, from, to string) {
	tb.Helper()
	if err := os.MkdirAll(to, 0o700); err != nil {
		tb.Fatal(err)
	}
	list, err := os.ReadDir(from)
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range list {
		if err := copyFile(filepath.Join(from, f.Name()), filepath.Join(to, f.Name())); err != nil {
			tb.Fatal(err)
		}
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}
