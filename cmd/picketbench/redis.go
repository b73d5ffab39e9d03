package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisServer is a redis-server of our own on a unix socket.
type redisServer struct {
	socket  string
	version string
	dir     string
	process *exec.Cmd
	client  *redis.Client
}

// usage is a look at what Redis and this process have done since their start.
type usage struct {
	cpuSeconds float64
	ownSeconds float64 // of this process
	calls      int64
}

// fsyncArgs are the durability settings by name.
var fsyncArgs = map[string][]string{
	"off":      {"--appendonly", "no"},
	"everysec": {"--appendonly", "yes", "--appendfsync", "everysec"},
	"always":   {"--appendonly", "yes", "--appendfsync", "always"},
}

// startRedis starts a server and waits until it answers.
func startRedis(ctx context.Context, fsync string) (*redisServer, error) {
	settings, ok := fsyncArgs[fsync]
	if !ok {
		return nil, fmt.Errorf("fsync is off, everysec or always")
	}
	dir, err := os.MkdirTemp("", "picketbench")
	if err != nil {
		return nil, fmt.Errorf("make folder for Redis: %w", err)
	}
	socket := filepath.Join(dir, "redis.sock")
	args := append([]string{"--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--maxmemory-policy",
		"noeviction", "--loglevel", "warning", "--enable-debug-command", "local"}, settings...)
	process := exec.Command("redis-server", args...)
	process.Stderr = os.Stderr
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C ends us first, then it
	if err := process.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("start redis-server (is it installed?): %w", err)
	}
	s := &redisServer{
		socket:  socket,
		dir:     dir,
		process: process,
		client:  redis.NewClient(&redis.Options{Network: "unix", Addr: socket}),
	}
	if err := s.await(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *redisServer) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := s.client.Info(ctx, "server").Result()
		if err == nil {
			s.version = field(info, "redis_version")
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("redis-server does not answer: %w", err)
		case <-tick.C:
		}
	}
}

// stop ends the server and removes its files.
func (s *redisServer) stop() {
	s.client.Close()
	s.process.Process.Kill()
	s.process.Wait()
	os.RemoveAll(s.dir)
}

// empty removes everything from the server, scripts aside, as a new file does.
func (s *redisServer) empty(ctx context.Context) error {
	if err := s.client.FlushAll(ctx).Err(); err != nil {
		return fmt.Errorf("empty Redis: %w", err)
	}
	return nil
}

// look reads the server's processor time and the commands clients sent.
func (s *redisServer) look(ctx context.Context) (usage, error) {
	info, err := s.client.Info(ctx, "everything").Result()
	if err != nil {
		return usage{}, fmt.Errorf("read Redis info: %w", err)
	}
	var u usage
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		v, err := strconv.ParseFloat(field(info, name), 64)
		if err != nil {
			return usage{}, fmt.Errorf("read %s: %w", name, err)
		}
		u.cpuSeconds += v
	}
	u.calls = clientCalls(info)
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return usage{}, fmt.Errorf("read own processor time: %w", err)
	}
	u.ownSeconds = time.Duration(own.Utime.Nano() + own.Stime.Nano()).Seconds()
	return u, nil
}

// clientCalls adds up the scripts called. What a script calls is counted by
// Redis under the command's own name, so only those of scripts tell trips.
func clientCalls(info string) int64 {
	var n int64
	for _, name := range []string{"evalsha", "eval", "fcall"} {
		for part := range strings.SplitSeq(field(info, "cmdstat_"+name), ",") {
			if calls, ok := strings.CutPrefix(part, "calls="); ok {
				v, _ := strconv.ParseInt(calls, 10, 64)
				n += v
			}
		}
	}
	return n
}

func field(info, name string) string {
	for line := range strings.SplitSeq(info, "\r\n") {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return v
		}
	}
	return ""
}

// resetCounts sets the server's counters of commands back to nothing.
func (s *redisServer) resetCounts(ctx context.Context) error {
	if err := s.client.ConfigResetStat(ctx).Err(); err != nil {
		return fmt.Errorf("reset counters: %w", err)
	}
	return nil
}

// count is what Redis did of one command since resetCounts: inside scripts too.
type count struct {
	calls  int64
	micros float64
}

// counts reads the counters of all commands.
func (s *redisServer) counts(ctx context.Context) (map[string]count, error) {
	info, err := s.client.Info(ctx, "commandstats").Result()
	if err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	out := map[string]count{}
	for row := range strings.SplitSeq(info, "\r\n") {
		name, values, ok := strings.Cut(strings.TrimPrefix(row, "cmdstat_"), ":")
		if !ok || !strings.HasPrefix(row, "cmdstat_") {
			continue
		}
		var c count
		if _, err := fmt.Sscanf(values, "calls=%d,usec=%f", &c.calls, &c.micros); err != nil {
			return nil, fmt.Errorf("read counter %q: %w", row, err)
		}
		out[name] = c
	}
	return out, nil
}

// timed runs do and returns what each matching command cost the server itself,
// in the order they ran, once there are as many as wanted. It is Redis' own
// slow log at a threshold of nothing, so waiting and transport are not in it.
func (s *redisServer) timed(ctx context.Context, wanted int, match func(args []string) bool,
	do func() error) (times, error) {
	if err := s.slowLog(ctx, "0"); err != nil {
		return nil, err
	}
	defer s.slowLog(context.WithoutCancel(ctx), "-1")
	if err := do(); err != nil {
		return nil, err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		rows, err := s.client.SlowLogGet(ctx, -1).Result()
		if err != nil {
			return nil, fmt.Errorf("read slow log: %w", err)
		}
		var out times
		for _, row := range slices.Backward(rows) { // the latest comes first
			if match(row.Args) {
				out.add(row.Duration)
			}
		}
		if len(out) >= wanted {
			return out, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d commands were seen: %w", len(out), wanted, ctx.Err())
		case <-tick.C: // a peer works behind our back
		}
	}
}

func (s *redisServer) slowLog(ctx context.Context, threshold string) error {
	pipe := s.client.Pipeline()
	pipe.ConfigSet(ctx, "slowlog-log-slower-than", threshold)
	pipe.ConfigSet(ctx, "slowlog-max-len", "200000")
	pipe.SlowLogReset(ctx)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("set slow log: %w", err)
	}
	return nil
}

// settle waits until the server has moved its keys into the table that fits
// their number. While it does, every command moves a few, which costs what the
// size of the store does not.
func (s *redisServer) settle(ctx context.Context) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		tables, err := s.client.Do(ctx, "DEBUG", "HTSTATS", 0).Text()
		if err != nil {
			return fmt.Errorf("read sizes of tables: %w", err)
		}
		if !strings.Contains(tables, "rehashing target") {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
