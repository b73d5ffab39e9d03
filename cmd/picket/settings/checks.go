package settings

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/outbound"
)

func checkDestinations(text string) error {
	if _, err := outbound.New(outbound.Config{Allow: parts(text), AllowAllPublic: true}); err != nil {
		return fmt.Errorf("%w; write host:port, several separated by commas", err)
	}
	return nil
}

var (
	WorkspaceSources = []string{string(workspace.Here), string(workspace.Worktree),
		string(workspace.Copy),
		string(workspace.Empty)}
	WorkspaceResumes = []string{string(workspace.ResumeReuse), string(workspace.ResumeCopy),
		string(workspace.ResumeFresh)}
)

// checkURL takes an absolute URL with a host.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("%q is not a URL such as http://127.0.0.1:7070", text)
	}
	return nil
}

func checkListen(text string) error {
	_, port, err := net.SplitHostPort(text)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("%q: write host:port, such as 127.0.0.1:7070", text)
	}
	return nil
}

// checkHosts refuses what no Host header ever equals.
func checkHosts(text string) error {
	for _, name := range parts(text) {
		if name != "*" && !hostName.MatchString(name) {
			return fmt.Errorf("%q is not a name such as picket.example.com, without http:// and port; several are separated by commas", name)
		}
	}
	return nil
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

func checkNamespaces(text string) error {
	for ns := range strings.SplitSeq(text, ",") {
		if err := picket.CheckNamespace("namespace", ns); err != nil {
			return fmt.Errorf("%q is not a namespace: 1 to 32 lower-case letters, digits or -", ns)
		}
	}
	return nil
}

func checkDuration(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return fmt.Errorf("%q is not a duration such as 90s, 10m or 720h", text)
	}
	return nil
}

func checkSource(text string) error { return checkOneOf(text, WorkspaceSources...) }

func checkResume(text string) error { return checkOneOf(text, WorkspaceResumes...) }

func checkOneOf(text string, values ...string) error {
	if !slices.Contains(values, text) {
		return fmt.Errorf("%q is none of %s", text, strings.Join(values, ", "))
	}
	return nil
}

func checkKeep(text string) error {
	if d, err := time.ParseDuration(text); err != nil || d < 0 {
		return fmt.Errorf("%q is not a duration such as 0s, 36h or 720h", text)
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

func checkStall(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < picket.MinStall*time.Second || d > picket.MaxStall*time.Second || d%time.Second != 0 {
		return fmt.Errorf("%q is not a whole number of seconds from 2s to 24h, such as 10m", text)
	}
	return nil
}

func checkCount(text string) error {
	if n, err := strconv.ParseInt(text, 10, 64); err != nil || n < 1 {
		return fmt.Errorf("%q is not a number of at least 1", text)
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

func checkYesNo(text string) error {
	if text != "true" && text != "false" {
		return fmt.Errorf("%q is neither true nor false", text)
	}
	return nil
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
