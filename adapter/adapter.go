package adapter

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/client"
)

// Adapter leases tasks and runs an agent for each.
type Adapter struct {
	cfg        Config
	client     *client.Client
	releasing  context.Context // ended by ReleaseNow
	releaseNow context.CancelFunc

	noAdvance             atomic.Bool // the server is of a version that has no such route
	noSeparateCredentials atomic.Bool // the server is of a version that has one credential for each lease
}

// New checks a configuration and fills in its defaults. It calls no server. A value that cannot be used is a
// *[picket.Error] with CodeValidation and the fact "field"; Metadata that is too long is CodeTooLarge. Any other
// error comes from the system or from git.
func New(cfg Config) (*Adapter, error) {
	if cfg.BaseURL == "" {
		return nil, picket.Invalid("BaseURL", "Set it to a URL such as http://127.0.0.1:7070.",
			"the orchestrator's URL is missing")
	}
	if cfg.agentIDGiven = cfg.AgentID != ""; !cfg.agentIDGiven {
		cfg.AgentID = "agent_" + newULID()
	}
	cfg.Max = cmp.Or(cfg.Max, 1)
	cfg.Wait = cmp.Or(cfg.Wait, 30*time.Second)
	req := cfg.request(cfg.Max)
	if err := req.Normalize(); err != nil {
		return nil, err
	}
	if err := cfg.fillDirs(); err != nil {
		return nil, err
	}
	cfg.StateKey = cmp.Or(cfg.StateKey, cfg.Key)
	cfg.KeepRuns = cmp.Or(cfg.KeepRuns, 7*24*time.Hour)
	cfg.LogLimit = cmp.Or(cfg.LogLimit, 64<<20)
	cfg.Linger = cmp.Or(cfg.Linger, cfg.Preset.Linger())
	cfg.Grace = cmp.Or(cfg.Grace, 5*time.Second)
	if err := cfg.fillTaskLimits(); err != nil {
		return nil, err
	}
	cfg.ReportRetry = cmp.Or(cfg.ReportRetry, 30*time.Second)
	cfg.copying = &sync.Mutex{}
	if cfg.AgentName != "" {
		if err := picket.CheckName("AgentName", cfg.AgentName); err != nil {
			return nil, err
		}
	}
	if err := cfg.ProgressTick.fill(); err != nil {
		return nil, err
	}
	if err := cfg.Health.fill(); err != nil {
		return nil, err
	}
	if cfg.OnProgressTick == nil {
		cfg.OnProgressTick = func(Elapsed) {}
	}
	if cfg.OnEvent == nil {
		cfg.OnEvent = func(Event) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.clock == nil {
		cfg.clock = process.BootClock
	}
	if cfg.jitter == nil {
		cfg.jitter = rand.N[time.Duration]
	}
	for _, name := range cfg.Env {
		if strings.HasPrefix(name, "PICKET_") || strings.ContainsAny(name, "=\x00") || name == "" {
			return nil, picket.Invalid("Env", "Leave it out: the agent gets its lease automatically.",
				"the variable %q cannot be passed to an agent", name)
		}
	}
	if err := cfg.Limits.Fill(); err != nil {
		return nil, err
	}
	if cfg.Launcher == nil {
		if err := process.CheckContainment(cfg.Containment); err != nil {
			return nil, err
		}
		var err error
		if cfg.Launcher, err = cfg.launcher(); err != nil {
			return nil, err
		}
	} else if cfg.Containment != "" {
		return nil, picket.Invalid("Containment", "Leave it out, or leave Launcher out.",
			"a Launcher of your own decides how it holds processes")
	}
	if _, err := cfg.registrationRequest("instance"); err != nil {
		return nil, err
	}
	if err := cfg.checkStateDir(); err != nil {
		return nil, err
	}
	cfg.renewals = newRenewals(&cfg)
	a := &Adapter{cfg: cfg, client: newClient(cfg.BaseURL, cfg.Key, cfg.HTTP)}
	a.releasing, a.releaseNow = context.WithCancel(context.Background())
	return a, nil
}

// AgentID is the name under which the adapter leases.
func (a *Adapter) AgentID() string { return a.cfg.AgentID }

// ReleaseNow ends every run at once: process trees are killed and leases given
// back with class released. Run takes no more leases and returns.
func (a *Adapter) ReleaseNow() { a.releaseNow() }

// withReleaseNow is ctx, ended by ReleaseNow too.
func (a *Adapter) withReleaseNow(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(a.releasing, cancel)
	return ctx, func() { stop(); cancel() }
}
