package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startTimeout is how long the rig waits for what it started. It is generous, because it does not
// assert anything.
const startTimeout = 30 * time.Second

// Node is a redis-server on a port of the loopback interface, for what needs
// an address: replication, Sentinel, Cluster. It ends with the test.
type Node struct {
	Addr string // host:port
	Dir  string // its working directory: logs, AOF, RDB, node file

	tb   testing.TB
	args []string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// StartNode starts a redis-server on a free port without persistence; args
// come last and win. It fails the test when it does not answer.
func StartNode(tb testing.TB, args ...string) *Node {
	tb.Helper()
	n := newNode(tb, args...)
	n.Start()
	return n
}

func newNode(tb testing.TB, args ...string) *Node {
	tb.Helper()
	SkipShort(tb)
	dir, err := os.MkdirTemp("", "pk")
	if err != nil {
		tb.Fatal(err)
	}
	port := strconv.Itoa(FreePort(tb))
	n := &Node{tb: tb, Dir: dir, Addr: net.JoinHostPort("127.0.0.1", port)}
	n.args = append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no",
		"--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0", "--logfile", filepath.Join(dir, "log")},
		args...)
	tb.Cleanup(func() {
		n.Kill()
		_ = os.RemoveAll(dir)
	})
	return n
}

// Start starts the server (again), on the same port and directory, and returns
// when it answers.
func (n *Node) Start() {
	n.tb.Helper()
	cmd := exec.Command("redis-server", n.args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		n.tb.Fatalf("start redis-server (apt-get install redis-server): %v", err)
	}
	done := make(chan struct{})
	n.cmd, n.done = cmd, done
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	err := eventually(func(ctx context.Context) error {
		select {
		case <-done:
			return fmt.Errorf("%w: %s", errEnded, cmd.ProcessState)
		default:
		}
		probe, err := net.Dial("tcp", n.Addr) // quietly, until it listens
		if err != nil {
			return err
		}
		_ = probe.Close()
		err = n.Do(ctx, "PING").Err()
		if err != nil && strings.HasPrefix(err.Error(), "NOAUTH") {
			return nil // it answers, to those it knows
		}
		return err
	})
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(n.Dir, "log"))
		n.tb.Fatalf("redis-server on %s does not answer: %v\n%s%s", n.Addr, err, out.String(), log)
	}
}

// Process is the running server, for signals.
func (n *Node) Process() *os.Process { return n.cmd.Process }

// Kill ends the server with SIGKILL and returns when it is gone. Again is fine.
func (n *Node) Kill() {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill()
	<-n.done
}

// Do sends one command on a connection of its own, as the default user.
func (n *Node) Do(ctx context.Context, args ...any) *redis.Cmd {
	c := n.Client()
	defer c.Close()
	return c.Do(ctx, args...)
}

// Client connects to this node alone, without retries; the caller closes it.
func (n *Node) Client() *redis.Client {
	return Hashes(redis.NewClient(&redis.Options{
		Addr:          n.Addr,
		MaxRetries:    -1,
		DialerRetries: 1,
		DialTimeout:   time.Second,
		ReadTimeout:   2 * time.Second,
	}))
}

// Info is one field of INFO, empty when the node does not answer.
func (n *Node) Info(ctx context.Context, section, field string) string {
	text, _ := n.Do(ctx, "INFO", section).Text()
	return valueOf(text, field)
}

// valueOf finds "name:value" in the answer of INFO or CLUSTER INFO.
func valueOf(text, name string) string {
	_, rest, _ := strings.Cut("\n"+text, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

// offset is a replication offset of INFO, -1 when there is none.
func (n *Node) offset(ctx context.Context, field string) int64 {
	v, err := strconv.ParseInt(n.Info(ctx, "replication", field), 10, 64)
	if err != nil {
		return -1
	}
	return v
}

// hostPort are the two parts of an address of this rig.
func hostPort(addr string) (host, port string) {
	host, port, _ = net.SplitHostPort(addr)
	return host, port
}

// Store is where this node alone is.
func (n *Node) Store() Store {
	return Store{Redis: redis.UniversalOptions{Addrs: []string{n.Addr}}}
}

// errEnded says that there is nothing to wait for.
var errEnded = errors.New("the process ended")

// eventually repeats an attempt until it succeeds or startTimeout has passed.
func eventually(attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		err := attempt(ctx)
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

var ports struct {
	sync.Mutex
	given map[int]bool
}

// FreePort finds a port below the range that the kernel gives to outgoing
// connections, so nobody takes it before the server does. No port is given
// twice, nor one whose cluster bus port (10000 above) would be another's.
func FreePort(tb testing.TB) int {
	tb.Helper()
	ports.Lock()
	defer ports.Unlock()
	if ports.given == nil {
		ports.given = map[int]bool{}
	}
	// Test binaries run side by side: each starts somewhere else.
	for i := range 4000 {
		port := 12000 + (os.Getpid()*37+i)%9000
		if ports.given[port] {
			continue
		}
		free := true
		for _, p := range []int{port, port + 10000} {
			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
			if err != nil {
				free = false
				break
			}
			_ = l.Close()
		}
		if free {
			ports.given[port] = true
			return port
		}
	}
	tb.Fatal("no free port")
	return 0
}
