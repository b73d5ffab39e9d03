package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/devredis"
)

// configFinding says for `picket doctor` which file is used, or why one is not.
func configFinding(cmd *cobra.Command) Finding {
	f, err := settings.FindConfig(cmd)
	switch reason := f.DistrustReason(); {
	case err != nil:
		return Failed("configuration", err)
	case reason != "":
		return Finding{"configuration", "warn", f.Path + " in this directory is ignored: " + reason,
			"Read the file, then run: " + settings.TrustCommand}
	case f.Path == "":
		return Finding{"configuration", "ok", "no picket.yaml; defaults and environment", ""}
	}
	return Finding{"configuration", "ok", f.Path, ""}
}

// Finding is one thing the doctor looked at.
type Finding struct {
	Subject string
	Grade   string // ok, warn, fail
	Detail  string
	Remedy  string
}

// Failed is the finding of a check that ended with an error.
func Failed(subject string, err error) Finding {
	return Finding{subject, "fail", exit.Text(err), exit.Remedy(err)}
}

// Checks are the checks that need the packages of the server.
type Checks struct {
	// Redis checks the configured Redis. say tells how far a long check has come.
	Redis func(ctx context.Context, cfg settings.Settings, say func(format string, args ...any)) []Finding
	// Fences checks the fence marks of the configured databases.
	Fences func(context.Context, settings.Settings) []Finding
	// WitnessedFloor is the floor that this machine knows of a namespace's store.
	WitnessedFloor func(cfg settings.Settings, namespace, storeID string) (floor int64, known bool, err error)
	// MissingVariables names the variables that the tools need and the environment lacks.
	MissingVariables func(settings.Settings) []string
}

// New is `picket doctor`, with the checks that need the packages of the server.
func New(checks Checks) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check this machine, the configuration and the server", Args: cli.CheckArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 15*time.Second)
			defer cancel()
			found, unreached := checks.run(ctx, cmd)
			w := cmd.OutOrStdout()
			p := term.Painter(w)
			var rows [][]string
			failed := false
			for _, f := range found {
				rows = append(rows, []string{p.State(f.Grade), f.Subject, f.Detail})
				if f.Remedy != "" {
					rows = append(rows, []string{"", "", p.Dim("fix: ") + f.Remedy})
				}
				failed = failed || f.Grade == "fail"
			}
			term.PrintRows(w, rows)
			switch {
			case unreached != nil:
				return exit.Status(exit.Code(unreached))
			case failed:
				return exit.Status(exit.Error)
			}
			return nil
		},
	}
}

// run looks at everything. The error is why the server cannot be used.
func (c Checks) run(ctx context.Context, cmd *cobra.Command) ([]Finding, error) {
	cfg, err := settings.LoadSettings(cmd)
	if err != nil {
		return []Finding{Failed("configuration", err)}, err
	}
	found := []Finding{configFinding(cmd)}
	s, stats, server, err := askServer(ctx, cmd)
	store := storeFinding(ctx, cfg)
	if found = append(found, store); store.Grade == "ok" {
		found = append(found, c.Redis(ctx, cfg, newProgressPrinter(cmd.ErrOrStderr()))...)
	}
	found = append(found, dataFinding(cfg), server)
	found = append(found, publicURLFindings(ctx, cfg.PublicURL)...)
	found = append(found, toolFindings(cfg, c.MissingVariables(cfg))...)
	found = append(found, c.Fences(ctx, cfg)...)
	if err == nil {
		found = append(found, c.floorFinding(cfg, stats), memoryFinding(stats))
		found = append(found, agentsFindings(ctx, s, stats)...)
		found = append(found, priceFinding(ctx, s))
		found = append(found, reminderFindings(ctx, cfg, s)...)
	}
	found = append(found, presetFindings()...)
	found = append(found, containmentFinding(), pathFinding())
	return append(found, remoteFindings(ctx, cfg)...), err
}

func storeFinding(ctx context.Context, cfg settings.Settings) Finding {
	f := Finding{Subject: "store", Grade: "ok"}
	if url := cfg.Redis; url != "" {
		f.Detail = "configured: " + settings.RedactedRedisURL(url)
		if _, err := settings.ParseRedisURL(url); err != nil {
			return Failed("store", err)
		} else if err := pingRedis(ctx, url); err != nil {
			f.Grade, f.Detail, f.Remedy = "fail", settings.RedactedRedisURL(url)+" does not answer",
				"Start it, or check --redis, PICKET_REDIS and picket.yaml."
		}
		return f
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return noRedisFinding(cfg, "no redis-server on PATH")
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	version := strings.TrimSpace(string(out))
	if err != nil {
		f.Grade, f.Detail = "fail", fmt.Sprintf("%s does not run: %v", path, err)
		return f
	}
	if _, v, ok := strings.Cut(version, "v="); ok {
		version, _, _ = strings.Cut(v, " ")
	}
	f.Detail = "redis-server " + version
	if major, _, _ := strings.Cut(version, "."); len(major) == 1 && major < "7" {
		return noRedisFinding(cfg, f.Detail+" is too old")
	}
	return f
}

// noRedisFinding says what a start would do: keep state in memory, or refuse to
// where state has been kept already.
func noRedisFinding(cfg settings.Settings, why string) Finding {
	f := Finding{
		Subject: "store",
		Grade:   "warn",
		Detail:  why + ": `picket up` would keep state in memory only",
		Remedy:  "apt-get install redis-server (7.0 or newer)",
	}
	if kept, err := devredis.HasState(filepath.Join(cfg.Data, "redis")); kept || err != nil {
		f.Grade, f.Detail = "fail", why+": `picket up` does not start, the state of an earlier start needs it"
	}
	return f
}

// pingRedis asks a configured Redis once.
func pingRedis(ctx context.Context, url string) error {
	o, err := settings.ParseRedisURL(url)
	if err != nil {
		return err
	}
	redis.SetLogger(discardLogger{}) // a connection that fails is told in the finding
	o.DialTimeout, o.MaxRetries = 2*time.Second, -1
	client := redis.NewUniversalClient(&o)
	defer client.Close()
	return client.Ping(ctx).Err()
}

// discardLogger takes the driver's own log.
type discardLogger struct{}

func (discardLogger) Printf(context.Context, string, ...any) {}

func dataFinding(cfg settings.Settings) Finding {
	dir, err := filepath.Abs(cfg.Data)
	if err != nil {
		return Failed("data", err)
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return Finding{"data", "ok", dir + " (made by the first `picket up`)", ""}
	case err != nil:
		return Failed("data", err)
	case info.Mode().Perm()&0o077 != 0:
		return Finding{"data", "warn", dir + " can be entered by others", "chmod 700 " + dir}
	}
	return Finding{"data", "ok", dir, ""}
}

// askServer asks the server how it is. The error is why it cannot be used; the finding says the
// same in words.
func askServer(ctx context.Context, cmd *cobra.Command) (s *cli.Connection, stats picket.Stats, f Finding, err error) {
	if s, err = cli.Connect(cmd); err != nil {
		return s, stats, Failed("server", err), err
	}
	url := s.URL()
	if err = s.Server.Ready(ctx); err != nil {
		f = Failed("server", err)
		if errors.Is(err, picket.ErrUnknown) {
			f.Detail = err.Error()
		} else {
			f.Detail = url + ": " + f.Detail
		}
		return s, stats, f, err
	}
	if stats, err = s.Server.Stats(ctx); err != nil {
		f = Failed("server", err)
		f.Detail = url + " is ready, but: " + f.Detail
		return s, stats, f, err
	}
	f = Finding{"server", "ok",
		fmt.Sprintf("%s is ready, namespace %s, last event %d", url, stats.Namespace, stats.LastSeq), ""}
	if stats.Pause.Paused {
		f = Finding{"server", "warn", f.Detail + ", paused: " + term.OneLine(stats.Pause.Reason), "picket resume"}
	} else if apart := clockSkewText(stats); apart != "" {
		f = Finding{"server", "warn", f.Detail + ", " + apart,
			"Synchronize the clocks of both machines, such as with NTP."}
	}
	return s, stats, f, nil
}

// clockSkewText says how far the clocks of server and store are apart, if that is more than a
// request may take. Otherwise it is empty.
func clockSkewText(s picket.Stats) string {
	off := time.Duration(s.ClockOffsetMs) * time.Millisecond
	switch {
	case off > 2*time.Second:
		return fmt.Sprintf("the clock of its store is %s ahead of the server's", off)
	case off < -2*time.Second:
		return fmt.Sprintf("the clock of its store is %s behind the server's", -off)
	}
	return ""
}

// floorFinding tells which store the server works with, and whether it is
// behind what this machine knows.
func (c Checks) floorFinding(cfg settings.Settings, stats picket.Stats) Finding {
	detail := stats.StoreID + " was never adopted: tokens of a task begin at 1"
	if stats.Floor > 0 {
		detail = fmt.Sprintf("%s was adopted %s: every token is above %d", stats.StoreID, stats.AdoptedAt, stats.Floor)
	}
	switch floor, known, err := c.WitnessedFloor(cfg, stats.Namespace, stats.StoreID); {
	case err != nil:
		return Failed("fence", err)
	case known && floor > stats.Floor:
		return Finding{"fence", "warn",
			fmt.Sprintf("%s; the witness in %s knows %d, from another store or a newer state of this one", detail,
				settings.WitnessDir(cfg.Data), floor),
			"None, if the server is another one; else its next grant adopts the store."}
	}
	return Finding{"fence", "ok", detail, ""}
}

// containmentFinding tells how well an adapter here holds its agents' processes.
func containmentFinding() Finding {
	level, why := process.BestContainment()
	switch {
	case level != picket.ContainmentGroup && os.Geteuid() == 0:
		return Finding{"containment", "warn", level + ": agents run as root, and a root process can leave its cgroup",
			"Run adapters as another user than root."}
	case why == "":
		return Finding{"containment", "ok", level + ": nobody of an agent's process tree survives its run", ""}
	case level == picket.ContainmentSubreaper:
		return Finding{"containment", "ok", level + "; no cgroup: " + term.OneLine(why), ""}
	}
	return Finding{"containment", "warn",
		level + " only: " + term.OneLine(why) + "; a process that leaves its group survives",
		"Run agents on Linux, or in a container."}
}

// pathFinding: agents call `picket tool` by name.
func pathFinding() Finding {
	path, err := exec.LookPath("picket")
	if err != nil {
		self, _ := os.Executable()
		return Finding{"PATH", "warn", "picket is not on PATH; agents that an adapter starts can still call it",
			"ln -s " + self + " /usr/local/bin/picket"}
	}
	return Finding{"PATH", "ok", path, ""}
}

// presetFindings are the coding agents on this machine, for the doctor.
func presetFindings() []Finding {
	var found []Finding
	var absent []string
	for _, p := range agents.Presets {
		if !p.CodingAgent() {
			continue
		}
		r := p.Readiness()
		what := "agent " + string(p)
		switch {
		case r.Program == "":
			absent = append(absent, string(p))
		case r.Key == "":
			found = append(found, Finding{what, "warn", r.Program + ", with nothing to sign in with", r.Remedy})
		default:
			found = append(found, Finding{what, "ok", fmt.Sprintf("%s, signs in with %s", r.Program, r.Key), ""})
		}
	}
	if len(absent) > 0 {
		found = append(found, Finding{"agents here", "ok",
			strings.Join(absent, ", ") + " not on PATH; `picket run -- COMMAND` needs none of them", ""})
	}
	return found
}
