package main

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
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/devredis"
)

// configFinding says for `picket doctor` which file is used, or why one is not.
func configFinding(cmd *cobra.Command) finding {
	f, err := settings.FindConfig(cmd)
	switch reason := f.DistrustReason(); {
	case err != nil:
		return finding{"configuration", "fail", exit.Text(err), exit.Remedy(err)}
	case reason != "":
		return finding{"configuration", "warn", f.Path + " in this directory is ignored: " + reason,
			"Read the file, then run: " + settings.TrustCommand}
	case f.Path == "":
		return finding{"configuration", "ok", "no picket.yaml; defaults and environment", ""}
	}
	return finding{"configuration", "ok", f.Path, ""}
}

// finding is one thing the doctor looked at.
type finding struct {
	subject string
	grade   string // ok, warn, fail
	detail  string
	remedy  string
}

func newDoctor() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check this machine, the configuration and the server", Args: checkArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 15*time.Second)
			defer cancel()
			found, unreached := runChecks(ctx, cmd)
			w := cmd.OutOrStdout()
			p := term.Painter(w)
			var rows [][]string
			failed := false
			for _, f := range found {
				rows = append(rows, []string{p.State(f.grade), f.subject, f.detail})
				if f.remedy != "" {
					rows = append(rows, []string{"", "", p.Dim("fix: ") + f.remedy})
				}
				failed = failed || f.grade == "fail"
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

// runChecks looks at everything. The error is why the server cannot be used; its
// finding says the same in words.
func runChecks(ctx context.Context, cmd *cobra.Command) ([]finding, error) {
	cfg, err := settings.LoadSettings(cmd)
	if err != nil {
		return []finding{{"configuration", "fail", exit.Text(err), exit.Remedy(err)}}, err
	}
	found := []finding{configFinding(cmd)}
	server, err := serverFinding(ctx, cmd)
	store := storeFinding(ctx, cfg)
	if found = append(found, store); store.grade == "ok" {
		found = append(found, redisFindings(ctx, cfg)...)
	}
	found = append(found, dataFinding(cfg), server)
	found = append(found, toolFindings(cfg)...)
	found = append(found, fenceFindings(ctx, cfg)...)
	if err == nil {
		found = append(found, floorFinding(ctx, cmd, cfg))
		found = append(found, memoryFinding(ctx, cmd))
		found = append(found, agentsFindings(ctx, cmd)...)
		found = append(found, priceFinding(ctx, cmd))
	}
	found = append(found, presetFindings()...)
	return append(found, containmentFinding(), pathFinding()), err
}

func storeFinding(ctx context.Context, cfg settings.Settings) finding {
	f := finding{subject: "store", grade: "ok"}
	if url := cfg.Text("redis"); url != "" {
		f.detail = "configured: " + settings.RedactedRedisURL(url)
		if _, err := settings.ParseRedisURL(url); err != nil {
			f.grade, f.detail, f.remedy = "fail", exit.Text(err), exit.Remedy(err)
		} else if err := pingRedis(ctx, url); err != nil {
			f.grade, f.detail, f.remedy = "fail", settings.RedactedRedisURL(url)+" does not answer",
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
		f.grade, f.detail = "fail", fmt.Sprintf("%s does not run: %v", path, err)
		return f
	}
	if _, v, ok := strings.Cut(version, "v="); ok {
		version, _, _ = strings.Cut(v, " ")
	}
	f.detail = "redis-server " + version
	if major, _, _ := strings.Cut(version, "."); len(major) == 1 && major < "7" {
		return noRedisFinding(cfg, f.detail+" is too old")
	}
	return f
}

// noRedisFinding says what a start would do: keep state in memory, or refuse to
// where state has been kept already.
func noRedisFinding(cfg settings.Settings, why string) finding {
	f := finding{
		subject: "store",
		grade:   "warn",
		detail:  why + ": `picket up` would keep state in memory only",
		remedy:  "apt-get install redis-server (7.0 or newer)",
	}
	if kept, err := devredis.HasState(filepath.Join(cfg.Text("data"), "redis")); kept || err != nil {
		f.grade, f.detail = "fail", why+": `picket up` does not start, the state of an earlier start needs it"
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

func dataFinding(cfg settings.Settings) finding {
	dir, err := filepath.Abs(cfg.Text("data"))
	if err != nil {
		return finding{"data", "fail", err.Error(), ""}
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return finding{"data", "ok", dir + " (made by the first `picket up`)", ""}
	case err != nil:
		return finding{"data", "fail", err.Error(), ""}
	case info.Mode().Perm()&0o077 != 0:
		return finding{"data", "warn", dir + " can be entered by others", "chmod 700 " + dir}
	}
	return finding{"data", "ok", dir, ""}
}

func serverFinding(ctx context.Context, cmd *cobra.Command) (finding, error) {
	s, err := connect(cmd)
	if err != nil {
		return finding{"server", "fail", exit.Text(err), exit.Remedy(err)}, err
	}
	url := s.client.BaseURL
	if err := s.get(ctx, "/readyz", nil, nil); err != nil {
		if errors.Is(err, picket.ErrUnknown) {
			return finding{"server", "fail", err.Error(), exit.Remedy(err)}, err
		}
		return finding{"server", "fail", url + ": " + exit.Text(err), exit.Remedy(err)}, err
	}
	var stats picket.Stats
	if err := s.get(ctx, "/api/v1/stats", &stats, nil); err != nil {
		return finding{"server", "fail", url + " is ready, but: " + exit.Text(err), exit.Remedy(err)}, err
	}
	detail := fmt.Sprintf("%s is ready, namespace %s, last event %d", url, stats.Namespace, stats.LastSeq)
	if stats.Pause.Paused {
		return finding{"server", "warn", detail + ", paused: " + term.OneLine(stats.Pause.Reason), "picket resume"}, nil
	}
	if apart := clockSkewText(stats); apart != "" {
		return finding{"server", "warn", detail + ", " + apart,
			"Synchronize the clocks of both machines, such as with NTP."}, nil
	}
	return finding{"server", "ok", detail, ""}, nil
}

// clockSkewText says how far the clocks of server and store are apart, where that
// is more than a request may take; else nothing.
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
func floorFinding(ctx context.Context, cmd *cobra.Command, cfg settings.Settings) finding {
	var stats picket.Stats
	s, err := connect(cmd)
	if err == nil {
		err = s.get(ctx, "/api/v1/stats", &stats, nil)
	}
	if err != nil {
		return finding{"fence", "fail", exit.Text(err), exit.Remedy(err)}
	}
	detail := stats.StoreID + " was never adopted: tokens of a task begin at 1"
	if stats.Floor > 0 {
		detail = fmt.Sprintf("%s was adopted %s: every token is above %d", stats.StoreID, stats.AdoptedAt, stats.Floor)
	}
	switch floor, known, err := witnessedFloor(cfg, stats.Namespace, stats.StoreID); {
	case err != nil:
		return finding{"fence", "fail", exit.Text(err), exit.Remedy(err)}
	case known && floor > stats.Floor:
		return finding{"fence", "warn",
			fmt.Sprintf("%s; the witness in %s knows %d, from another store or a newer state of this one", detail,
				settings.WitnessDir(cfg.Text("data")), floor),
			"None, if the server is another one; else its next grant adopts the store."}
	}
	return finding{"fence", "ok", detail, ""}
}

// containmentFinding tells how well an adapter here holds its agents' processes.
func containmentFinding() finding {
	level, why := process.BestContainment()
	switch {
	case level != picket.ContainmentGroup && os.Geteuid() == 0:
		return finding{"containment", "warn", level + ": agents run as root, and a root process can leave its cgroup",
			"Run adapters as another user than root."}
	case why == "":
		return finding{"containment", "ok", level + ": nobody of an agent's process tree survives its run", ""}
	case level == picket.ContainmentSubreaper:
		return finding{"containment", "ok", level + "; no cgroup: " + term.OneLine(why), ""}
	}
	return finding{"containment", "warn",
		level + " only: " + term.OneLine(why) + "; a process that leaves its group survives",
		"Run agents on Linux, or in a container."}
}

// pathFinding: agents call `picket tool` by name.
func pathFinding() finding {
	path, err := exec.LookPath("picket")
	if err != nil {
		self, _ := os.Executable()
		return finding{"PATH", "warn", "picket is not on PATH; agents started by an adapter find it all the same",
			"ln -s " + self + " /usr/local/bin/picket"}
	}
	return finding{"PATH", "ok", path, ""}
}
