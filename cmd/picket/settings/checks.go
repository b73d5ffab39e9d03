package settings

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/internal/lazyregexp"
	"github.com/picket-dev/picket/internal/outbound"
	"github.com/picket-dev/picket/internal/unixsocket"
)

var (
	// WorkspaceSources are the values of workspace.source.
	WorkspaceSources = []string{string(workspace.Here), string(workspace.Worktree), string(workspace.Copy),
		string(workspace.Empty)}
	// WorkspaceResumes are the values of workspace.resume.
	WorkspaceResumes = []string{string(workspace.ResumeReuse), string(workspace.ResumeCopy),
		string(workspace.ResumeFresh)}
)

const (
	maxProcesses = 1 << 22 // more processes than a Linux machine can have
	forever      = time.Duration(math.MaxInt64)
)

// checks are the checks that the tags of fields name.
var checks = map[string]func(string) error{
	"agent":        checkAgentName,
	"allowed":      checkAllowed,
	"argument":     checkArgument,
	"containment":  checkContainment,
	"destinations": checkDestinations,
	"dollars":      checkDollars,
	"hosts":        checkHosts,
	"inside":       checkInside,
	"level":        checkLevel,
	"limit":        checkLimit,
	"listen":       checkListen,
	"memory":       checkMemory,
	"namespaces":   checkNamespaces,
	"server":       checkServer,
	"share":        checkShare,
	"preset":       checkPreset,
	"store_memory": checkStoreMemory,
	"tokens":       checkTokens,
	"url":          checkURL,
	"variable":     checkVariable,
	"window":       checkWindow,

	"charge_on": oneOf(string(budget.ChargeOnDispatch), string(budget.ChargeOnSuccess)),
	"kind":      oneOf(string(picket.SessionResumable), string(picket.SessionResident)),
	"remote":    workspace.CheckRemote,
	"resume":    oneOf(WorkspaceResumes...),
	"source":    oneOf(WorkspaceSources...),
	"unit":      oneOf(string(budget.UnitByte), string(budget.UnitSecond), string(budget.UnitResultToken)),

	"count":        wholeNumber(1, math.MaxInt64, "%q is not a number of at least 1"),
	"log_bytes":    wholeNumber(picket.MinLogBytes, picket.MaxLogBytes, "%q is not a number of bytes from 65536 to 4194304"),
	"bundle_bytes": wholeNumber(0, picket.MaxBundleSize, "%q is not a number of bytes from 0 to 67108864"),
	"reports":      wholeNumber(1, picket.MaxReports, "%q is not a number of reports from 1 to 5000"),
	"sessions":     wholeNumber(0, picket.MaxAgentSessions, "%q is not a number of sessions, 0 to 64"),
	"number":       wholeNumber(0, math.MaxInt, "%s is not a whole number"),
	"processes":    wholeNumber(0, maxProcesses, "%q is not a number of processes, 0 to 4194304"),

	"queue":      wholeNumber(1, 100_000, "%q is not a number of tasks from 1 to 100000"),
	"review":     oneOf(string(picket.ReviewByHuman), string(picket.ReviewByNone)),
	"capability": checkSkillTag,
	"card_name":  plainText(maxCardName, false),
	"card_text":  plainText(maxCardText, true),
	"card_url":   checkCardURL,
	"example":    plainText(maxExample, true),
	"media_type": checkMediaType,
	"public_url": checkPublicURL,

	"wake_body":        wholeNumber(1<<10, 256<<10, "%q is not a number of bytes from 1024 to 262144"),
	"projection":       wholeNumber(256, 256<<10, "%q is not a number of bytes from 256 to 262144"),
	"wakes_per_cycle":  wholeNumber(1, 1000, "%q is not a number of wakes from 1 to 1000"),
	"wake_cooldown":    duration(0, 24*time.Hour, 1, "%q is not a duration from 0s to 24h, such as 1m"),
	"wake_retention":   duration(time.Hour, 8760*time.Hour, 1, "%q is not a duration from 1h to 8760h, such as 168h"),
	"stale_after":      duration(time.Second, 24*time.Hour, 1, "%q is not a duration from 1s to 24h, such as 2m"),
	"min_interval":     duration(0, 8760*time.Hour, 1, "%q is not a duration from 0s to 8760h, such as 5m"),
	"default_interval": duration(time.Second, 8760*time.Hour, 1, "%q is not a duration from 1s to 8760h, such as 30m"),

	"duration": checkDuration,
	"keep":     duration(0, forever, 1, "%q is not a duration such as 0s, 36h or 720h"),
	"timeout": duration(time.Second, picket.MaxTimeout*time.Second, time.Second,
		"%s is not a whole number of seconds from 1s to 168h, such as 10m"),
	"tick": duration(10*time.Second, 24*time.Hour, 1, "%q is not a duration from 10s to 24h, such as 30s"),
	"remind": duration(time.Second, picket.MaxReminderAfter, 1,
		"%q is not a duration from 1s to 8760h, such as 30m"),
	"label":   checkLabelFilter,
	"webhook": checkWebhookName,
	"role":    func(text string) error { return picket.CheckOptionalName("role", text) },
	"stall": duration(picket.MinStall*time.Second, picket.MaxStall*time.Second, time.Second,
		"%q is not a whole number of seconds from 2s to 24h, such as 10m"),
	"call_time": duration(time.Second, picket.MaxExternalCall*time.Second, 1,
		fmt.Sprintf("%%s is not a duration from 1s to %ds", picket.MaxExternalCall)),

	"only_true": matches(`true`, "%q is not true: a wake never starts a session"),
	"yes_no":    matches(`true|false`, "%q is neither true nor false"),
	"env": matches(`[A-Za-z_][A-Za-z0-9_]*`,
		"the name of an environment variable is expected; secrets do not stand in this file"),
	"header": matches(`[A-Za-z0-9-]{1,64}`, "%s is not a name of a header"),
	"price": matches(`[A-Za-z0-9_.-]{1,128}\*?|\*`,
		"%s is not a name of a tool; it may end in * to mean all names with that beginning"),
	"short": matches(`[A-Za-z0-9][A-Za-z0-9-]{0,31}`, "%s is not a name here: 1 to 32 letters, digits or -"),
	"table": matches(`([a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,54}`,
		"%s is not a table name: write at most 55 lower-case letters, digits or _, with or without a schema, such as public.picket_fence"),
	"upstream": matches(`[A-Za-z][A-Za-z0-9_]{0,31}`,
		"%s is not a name of an upstream: 1 to 32 letters, digits or _, a letter first"),
}

var checkDuration = duration(1, forever, 1, "%q is not a duration such as 90s, 10m or 720h")

// wrong puts a text into a message: for %q in the quotes of Go, for %s in those of a shell.
func wrong(message, text string) error {
	return errors.New(strings.NewReplacer("%q", strconv.Quote(text), "%s", term.ShellQuote(text)).Replace(message))
}

// oneOf is a check for one of several values.
func oneOf(values ...string) func(string) error {
	return func(text string) error {
		if !slices.Contains(values, text) {
			return fmt.Errorf("%q is not one of %s", text, strings.Join(values, ", "))
		}
		return nil
	}
}

// matches is a check for a whole text that matches a pattern.
func matches(pattern, message string) func(string) error {
	whole := lazyregexp.New(`^(` + pattern + `)$`)
	return func(text string) error {
		if !whole().MatchString(text) {
			return wrong(message, text)
		}
		return nil
	}
}

// wholeNumber is a check for a number within bounds.
func wholeNumber(least, most int64, message string) func(string) error {
	return func(text string) error {
		if n, err := strconv.ParseInt(text, 10, 64); err != nil || n < least || n > most {
			return wrong(message, text)
		}
		return nil
	}
}

// duration is a check for a multiple of a unit within bounds.
func duration(least, most, unit time.Duration, message string) func(string) error {
	return func(text string) error {
		if d, err := time.ParseDuration(text); err != nil || d < least || d > most || d%unit != 0 {
			return wrong(message, text)
		}
		return nil
	}
}

// check holds a text against the check of this name; "" stands for none.
func check(name, text string) error {
	if name == "" {
		return nil
	}
	return checks[name](text)
}

// checkName holds a name in a mapping against the check of this name.
func checkName(name, text string) error {
	if name != "agent" && (text == "" || strings.ContainsAny(text, PathSep+"\n")) {
		return fmt.Errorf("%s is not a name", term.ShellQuote(text))
	}
	return check(name, text)
}

func checkAgentName(text string) error {
	err := picket.CheckName("agents."+text, text)
	if err == nil {
		return nil
	}
	return picket.Refuse(exit.CodeUsage, exit.Remedy(err), "%s is not a name of an agent", term.ShellQuote(text))
}

func checkDestinations(text string) error {
	if _, err := outbound.New(outbound.Config{Allow: parts(text), AllowAllPublic: true}); err != nil {
		return fmt.Errorf("%w; write host:port, several separated by commas", err)
	}
	return nil
}

// checkURL takes an absolute URL with a host.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("%q is not a URL such as http://127.0.0.1:7070", text)
	}
	return nil
}

// checkServer takes the URL of a Picket server, which may listen on a Unix socket.
func checkServer(text string) error {
	if !unixsocket.IsURL(text) {
		return checkURL(text)
	}
	_, err := unixsocket.Path(text)
	return err
}

// checkListen takes addresses of TCP and Unix sockets.
func checkListen(text string) error {
	addresses := parts(text)
	if len(addresses) == 0 {
		return checkAddress("")
	}
	for _, address := range addresses {
		if err := checkAddress(address); err != nil {
			return err
		}
	}
	return nil
}

func checkAddress(address string) error {
	if unixsocket.IsURL(address) {
		return checkServer(address)
	}
	_, port, err := net.SplitHostPort(address)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("%q: write host:port, such as 127.0.0.1:7070, or unix:PATH", address)
	}
	return nil
}

// checkHosts refuses what no Host header ever equals.
func checkHosts(text string) error {
	for _, name := range parts(text) {
		if name != "*" && !hostName().MatchString(name) {
			return fmt.Errorf("%q is not a name such as picket.example.com, without http:// and port; several are separated by commas", name)
		}
	}
	return nil
}

var hostName = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

func checkNamespaces(text string) error {
	for ns := range strings.SplitSeq(text, ",") {
		if err := picket.CheckNamespace("namespace", ns); err != nil {
			return fmt.Errorf("%q is not a namespace: 1 to 32 lower-case letters, digits or -", ns)
		}
	}
	return nil
}

func checkWindow(text string) error {
	if err := checkDuration(text); err != nil {
		return err
	}
	d, _ := time.ParseDuration(text)
	if d < picket.MinWindow*time.Second || d > picket.MaxWindow*time.Second {
		return fmt.Errorf("%s is out of range: a lease lasts 2s to 24h", text)
	}
	if d%time.Second != 0 {
		return fmt.Errorf("%s is not a whole number of seconds", text)
	}
	return nil
}

// checkLimit takes a number of things that are bounded; 0 stands for the default.
func checkLimit(text string) error {
	if n, err := strconv.ParseUint(text, 10, 31); err != nil || strconv.FormatUint(n, 10) != text {
		return fmt.Errorf("%q is not a whole number from 0 to 2147483647", text)
	}
	return nil
}

func checkTokens(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not a whole number of tokens", text)
	}
	return budget.Envelope{Tokens: n}.Check()
}

func checkContainment(text string) error {
	if !slices.Contains(picket.Containments, text) {
		return fmt.Errorf("choose %s, or leave it out for the best that works", strings.Join(picket.Containments, ", "))
	}
	return nil
}

func checkLevel(text string) error {
	var l slog.Level
	if l.UnmarshalText([]byte(text)) != nil {
		return errors.New("the level is debug, info, warn or error")
	}
	return nil
}

func checkPreset(text string) error {
	if !slices.Contains(agents.Presets, agents.Preset(text)) {
		return fmt.Errorf("there is no agent called %s; choose one of: %s", term.ShellQuote(text), PresetNames())
	}
	return nil
}

func checkArgument(text string) error {
	if strings.ContainsRune(text, 0) {
		return errors.New("it holds a zero byte")
	}
	return nil
}

func checkVariable(text string) error {
	if name, _, given := strings.Cut(text, "="); given {
		return fmt.Errorf("%s: write only the name, %s; its value is taken from the worker's environment",
			term.ShellQuote(text), term.ShellQuote(name))
	}
	if strings.HasPrefix(text, "PICKET_") || text == "" || strings.ContainsRune(text, 0) {
		return fmt.Errorf("the variable %s cannot be passed to an agent", term.ShellQuote(text))
	}
	return nil
}

// PresetNames are all agents that are known, for people.
func PresetNames() string {
	var names []string
	for _, p := range agents.Presets {
		names = append(names, string(p))
	}
	return strings.Join(names, ", ")
}

func checkDollars(text string) error {
	m, err := parseDollars(text)
	if err == nil && m < 0 {
		err = fmt.Errorf("%s is below zero", term.ShellQuote(text))
	}
	return err
}

// checkAllowed takes host, host:port and *.domain.
func checkAllowed(text string) error {
	u, err := url.Parse("//" + text)
	if err != nil || u.Host != text || u.Hostname() == "" || u.User != nil {
		return fmt.Errorf("%s is neither a host nor host:port", term.ShellQuote(text))
	}
	return nil
}
