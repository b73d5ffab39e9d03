package main

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
)

// hostVariable makes this program a host's adapter: see asHost.
const hostVariable = "PICKETBENCH_HOST"

// hostPlan is what a host's adapter is told.
type hostPlan struct {
	URL        string
	Key        string
	Name       string
	Dir        string
	Registered bool
}

// config is that of the adapter. It is missed after 4 s of silence, or not at
// all when it is not registered.
func (p hostPlan) config() adapter.Config {
	return adapter.Config{
		BaseURL:      p.URL,
		Key:          picket.Secret(p.Key),
		AgentID:      p.Name,
		Role:         p.Name,
		StateDir:     p.Dir,
		Command:      []string{"sleep", "1000"},
		Unregistered: !p.Registered,
		Health: adapter.HealthConfig{
			Interval:       time.Second,
			UnhealthyAfter: 2 * time.Second,
			DeadAfter:      4 * time.Second,
		},
	}
}

// asHost runs a host's adapter when this process was started as one.
func asHost() {
	text := os.Getenv(hostVariable)
	if text == "" {
		return
	}
	os.Unsetenv(hostVariable)
	var p hostPlan
	err := stdjson.Unmarshal([]byte(text), &p)
	if err == nil {
		var a *adapter.Adapter
		if a, err = adapter.New(p.config()); err == nil {
			err = a.Run(context.Background())
		}
	}
	fmt.Fprintln(os.Stderr, "host:", err)
	os.Exit(1)
}

// host is a machine with an adapter, behind a cable of its own.
type host struct {
	hostPlan
	cable   *cable
	process *exec.Cmd
}

// boot starts a host that works on the tasks of a role of its name.
func boot(s *site, name, dir string, registered bool) (*host, error) {
	c, err := layCable(s.client.URL())
	if err != nil {
		return nil, err
	}
	h := &host{
		cable: c,
		hostPlan: hostPlan{
			URL:        c.url(),
			Key:        s.client.Key().Reveal(),
			Name:       name,
			Dir:        filepath.Join(dir, name),
			Registered: registered,
		},
	}
	text, err := stdjson.Marshal(h.hostPlan)
	if err == nil {
		var self string
		if self, err = os.Executable(); err == nil {
			h.process = exec.Command(self)
			h.process.Env = append(os.Environ(), hostVariable+"="+string(text))
			h.process.Stderr = os.Stderr
			h.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			err = h.process.Start()
		}
	}
	if err != nil {
		c.remove()
		return nil, fmt.Errorf("start host: %w", err)
	}
	return h, nil
}

// die is the end of a machine: it says nothing to anybody.
func (h *host) die() {
	h.cable.cut()
	_ = h.process.Process.Kill()
	_ = h.process.Wait()
}

// bury waits until nothing of a dead host runs here, where its agents' shims
// still do.
func (h *host) bury(ctx context.Context) error {
	defer h.cable.remove()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for runs(h.Dir) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("a process of the dead host %s lives on: %w", h.Name, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// runs reports whether a process has a directory in its arguments, in its
// environment or as its own.
func runs(dir string) bool {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if e.Name()[0] < '0' || e.Name()[0] > '9' || e.Name() == fmt.Sprint(os.Getpid()) {
			continue
		}
		args, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		cwd, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		if strings.Contains(string(args)+string(env)+cwd+"/", dir+"/") {
			return true
		}
	}
	return false
}
