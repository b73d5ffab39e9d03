// Package settings reads picket.yaml, and what flags and the environment say
// above it: the values of every command, their origins, and which files are trusted.
package settings

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/internal/web"
)

// WitnessDir is where this machine keeps the floor of each namespace.
func WitnessDir(data string) string { return filepath.Join(data, "witness") }

// NewLog writes for people who read a terminal or a journal.
func NewLog(cfg Settings, w interface{ Write([]byte) (int, error) }) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Text("log.level")))
	return web.WithLogIDs(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})))
}

// List reads a key that holds several values, separated by commas.
func (s Settings) List(key string) []string { return parts(s.Text(key)) }

func parts(text string) (out []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// ChangedKeys names the keys that differ beside those that were read again.
func (s Settings) ChangedKeys(other Settings) (keys []string) {
	for _, from := range []Settings{s, other} {
		for key := range from {
			taken := strings.HasPrefix(key, ToolsPrefix+"prices") || strings.HasPrefix(key, ToolsPrefix+"models") ||
				strings.HasPrefix(key, "budget.")
			if key = strings.TrimSuffix(key, ":"); !taken && s[key].Text != other[key].Text {
				keys = append(keys, DisplayKey(strings.ReplaceAll(key, PathSep, ".")))
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// setting is one key of picket.yaml. The same value can come from a flag and
// from the environment; the order is flag, environment, file, default.
type setting struct {
	Key   string // dotted, as in picket.yaml
	Flag  string // on the commands that have it
	def   string
	What  string
	check func(string) error // nil: any text
}

// Env is the variable of a key: PICKET_ and the key in capitals.
func (s setting) Env() string {
	return "PICKET_" + strings.ToUpper(strings.ReplaceAll(s.Key, ".", "_"))
}

// KnownSettings are all keys this version honours. There is no key that is
// accepted and ignored.
func KnownSettings() []setting {
	return []setting{
		{"url", "url", "", "server the commands talk to (default: the one `picket up` started last)", checkURL},
		{"listen", "listen", "127.0.0.1:7070", "address `up` and `serve` listen on; port 0 picks a free one",
			checkListen},
		{"data", "data", dataDir(),
			"directory of `picket up`; `serve orchestrator` and `init` keep their witness of the store in it", nil},
		{"redis", "redis", "", "Redis URL; empty: `up` brings its own store", nil},
		{"allow_unsafe_redis", "allow-unsafe-redis", "false",
			"start on a Redis that can lose what was acknowledged; for experiments", checkYesNo},
		{"secret_file", "secret-file", "", "file with the secret shared by all server processes", nil},
		{"namespace", "namespace", "default", "namespace; `serve` takes several, separated by commas", checkNamespaces},
		{"proxy_url", "proxy-url", "", "URL of the tool proxy, as agents reach it", checkURL},
		{"allowed_hosts", "", "",
			"names, separated by commas, that requests may be addressed to beside localhost and IP addresses; *: any",
			checkHosts},
		{"store.max_memory", "", "",
			"memory, such as 4GiB, that the store of `picket up` may use; 0: any (default: half of the machine's)",
			checkStoreMemory},
		{"tls.cert", "tls-cert", "", "certificate file; needed to listen beyond this machine", nil},
		{"tls.key", "tls-key", "", "file of the certificate's key", nil},
		{"connections.max", "", "0", "connections that a server accepts at once; 0: as many as its descriptors allow",
			checkLimit},
		{"connections.unknown", "", "0",
			"connections on which no valid credential was shown yet; 0: 4096, at most half of all", checkLimit},
		{"connections.unknown_per_address", "", "0",
			"the same from one address; 0: 1024, at most three quarters of connections.unknown", checkLimit},
		{"connections.per_key", "", "0", "connections that one API key or login uses at once; 0: half of all",
			checkLimit},
		{"connections.per_lease", "", "0", "connections that one lease uses at once; 0: 256", checkLimit},
		{"rate.per_key", "", "2000", "requests a second that one API key sends to one server; 0: any number",
			checkLimit},
		{"rate.per_lease", "", "200",
			"requests a second that the agent of one lease sends to one server, and as many for its adapter; 0: any number", checkLimit},
		{"quota.agents", "", "20000", "agent records of one key, those of dead and deregistered agents included",
			checkCount},
		{"quota.metadata_bytes", "", "16777216", "bytes of metadata in the agent records of one key", checkCount},
		{"quota.subtasks", "", "1000", "subtasks below one root task, ended ones included", checkCount},
		{"quota.calls", "", "50000", "metered calls of one tree of tasks within a day", checkCount},
		{"quota.open_calls", "", "256", "metered calls of one task that are under way at once", checkCount},
		{"quota.answers", "", "5000", "stored answers of calls with an Idempotency-Key, for one tree within a day",
			checkCount},
		{"quota.answer_bytes", "", "33554432", "bytes of these answers", checkCount},
		{"quota.report_bytes", "", "8388608", "bytes of progress reports of one task; older ones are deleted",
			checkCount},
		{"quota.runs", "", "1000", "runs of one task until a person has to decide on it", checkCount},
		{"containment", "containment", "",
			"how agents' processes are held together: cgroup, subreaper or group (default: the best that works)",
			checkContainment},
		{"limits.processes", "", "8192", "processes and threads that an agent's tree may have at once; 0: any number",
			checkProcesses},
		{"limits.exec.processes", "", "2048", "the same for each program of the tool exec", checkProcesses},
		{"limits.exec.memory", "", "",
			"memory, such as 4GiB, that each program of the tool exec may use; 0: any (default: half of the machine's)",
			checkMemory},
		{"lease.window", "lease-window", "5m", "how long a lease lasts without a renewal, 2s to 24h", checkWindow},
		{"stall_after", "stall-after", "",
			"a run without a sign of life for this time is nudged, and ended after as long again, 2s to 24h (default: never)", checkStall},
		{"workspace.source", "workspace", "",
			"where agents work: here, worktree, copy or empty; empty: here for `run`, a new directory for `adapter`",
			checkSource},
		{"workspace.resume", "resume", "reuse", "what the next run of a task begins with: reuse, copy or fresh",
			checkResume},
		{"workspace.keep", "keep", "0s",
			"how long a workspace is kept at least after its run; the server may keep it longer", checkKeep},
		{"retention.tasks", "", "720h", "how long closed tasks are kept", checkDuration},
		{"retention.events", "", "168h", "how long events are kept", checkDuration},
		{"retention.max_events", "", "1000000", "how many events are kept at most", checkCount},
		{"retention.audit_age", "", "9600h", "how long events of the audit log are kept", checkDuration},
		{"retention.audit_events", "", "1000000", "how many events of the audit log are kept at most", checkCount},
		{"budget.house.usd", "", "", "dollars that all tasks of a UTC day are given together (default: no limit)",
			checkDollars},
		{"budget.house.tokens", "", "", "tokens that all tasks of a UTC day are given together (default: no limit)",
			checkTokens},
		{"budget.default.usd", "", "1", "dollars of a task that names no envelope", checkDollars},
		{"budget.default.tokens", "", "1000000", "tokens of a task that names no envelope", checkTokens},
		{"public_url", "", "", "URL by which people reach this server; messages link to it", checkURL},
		{"console.host_per_login", "", "true",
			"each login to the console gets its own host name below localhost; false: one cookie, which the browser sends to every port of the host", checkYesNo},
		{"notify.allow", "", "",
			"addresses that are not public and may be webhooks all the same, host:port, separated by commas",
			checkDestinations},
		{"notify.desktop", "", "true", "notices on the desktop of anyone who waits for a task with `picket run`",
			checkYesNo},
		{"log.level", "log-level", "info", "debug, info, warn or error", checkLevel},
	}
}

// plannedSettings are keys of the design that wait for something unbuilt.
var plannedSettings = map[string]string{
	"heartbeat": "wake files",
}

// Value is a setting's text and where it came from.
type Value struct {
	Text   string
	Origin string
	Items  []string // of a list
	Local  bool     // from a file that was found in the current directory
}

// Settings are all values by dotted key; an entry under agents has the keys
// agents.NAME and agents.NAME.KEY, a place under tools that of its path.
type Settings map[string]Value

// LoadSettings resolves every key for a command. A local file that nobody
// trusted is an error or is ignored, see [trustedConfig].
func LoadSettings(cmd *cobra.Command) (Settings, error) {
	file, err := trustedConfig(cmd)
	if err != nil {
		return nil, err
	}
	inFile, err := file.Parse()
	if err != nil {
		return nil, err
	}
	resolved := Settings{}
	for _, s := range KnownSettings() {
		v := Value{Text: s.def, Origin: "default"}
		if in, ok := inFile[s.Key]; ok {
			v = in
		}
		if text := os.Getenv(s.Env()); text != "" {
			v = Value{Text: text, Origin: s.Env()}
		}
		if s.Flag != "" {
			if f := cmd.Flags().Lookup(s.Flag); f != nil && f.Changed {
				v = Value{Text: f.Value.String(), Origin: "--" + s.Flag}
			}
		}
		if s.check != nil && v.Text != "" {
			if err := s.check(v.Text); err != nil {
				return nil, exit.Usagef("%s (from %s): %v", s.Key, v.Origin, err)
			}
		}
		resolved[s.Key] = v
	}
	for key, v := range inFile {
		if strings.HasPrefix(key, agentsPrefix) || key == "tools" || strings.HasPrefix(key, ToolsPrefix) {
			resolved[key] = v
		}
	}
	if (resolved.Text("tls.cert") == "") != (resolved.Text("tls.key") == "") {
		return nil, exit.Usagef("tls.cert (from %s) and tls.key (from %s) belong together", resolved["tls.cert"].Origin,
			resolved["tls.key"].Origin)
	}
	return resolved, resolved.checkAgents()
}

// roleKeys are the keys that an entry under agents overrides for its role.
var roleKeys = []string{"stall_after", "workspace.source", "workspace.resume", "workspace.keep"}

// ForRole is the settings as they hold for a role: what its entry says stands
// between the environment and the file's general keys.
func (s Settings) ForRole(role string) Settings {
	e, ok := s.AgentOfRole(role)
	if !ok {
		return s
	}
	own := maps.Clone(s)
	for _, k := range KnownSettings() {
		v, given := e.Value(k.Key)
		if origin := s[k.Key].Origin; given && slices.Contains(roleKeys, k.Key) && origin != k.Env() &&
			origin != "--"+k.Flag {
			own[k.Key] = v
		}
	}
	return own
}

// Enabled reads a key that checkYesNo has checked.
func (s Settings) Enabled(key string) bool { return s[key].Text == "true" }

// Text is the value of a key as it was written; empty for a key without one.
func (s Settings) Text(key string) string { return s[key].Text }

// Duration reads a key that loadSettings has checked.
func (s Settings) Duration(key string) time.Duration {
	d, _ := time.ParseDuration(s[key].Text)
	return d
}

// Number reads a key that checkLimit has checked.
func (s Settings) Number(key string) int {
	n, _ := strconv.Atoi(s[key].Text)
	return n
}

// Retention is how long the store keeps closed tasks and events, and how many.
func (s Settings) Retention() picket.Retention {
	most, _ := strconv.ParseInt(s.Text("retention.max_events"), 10, 64)
	audit, _ := strconv.ParseInt(s.Text("retention.audit_events"), 10, 64)
	return picket.Retention{
		Tasks:       s.Duration("retention.tasks"),
		Events:      s.Duration("retention.events"),
		MaxEvents:   most,
		AuditAge:    s.Duration("retention.audit_age"),
		AuditEvents: audit,
	}
}

// Namespaces are the namespaces that the servers work for, at least one.
func (s Settings) Namespaces() []string { return strings.Split(s.Text("namespace"), ",") }

// ConfigDir is $XDG_CONFIG_HOME/picket, or ~/.config/picket.
func ConfigDir() string { return xdg("XDG_CONFIG_HOME", ".config") }

// dataDir is $XDG_DATA_HOME/picket, or ~/.local/share/picket.
func dataDir() string { return xdg("XDG_DATA_HOME", ".local/share") }

// StateDir is $XDG_STATE_HOME/picket, or ~/.local/state/picket.
func StateDir() string { return xdg("XDG_STATE_HOME", ".local/state") }

func xdg(variable, fallback string) string {
	if dir := os.Getenv(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, "picket")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = os.TempDir()
	}
	return filepath.Join(home, fallback, "picket")
}
