package mcp

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"regexp"
	"time"

	"github.com/picket-dev/picket"
)

// Upstream is an MCP server whose tools are offered beside our own, under its
// name and an underscore. One of URL and Command is set.
type Upstream struct {
	// Name prefixes its tools: letters, digits and underscores. Required.
	Name string
	// URL is where it listens for streamable HTTP. Defaults to none.
	URL string
	// Headers are sent with every request to URL. Defaults to none.
	Headers map[string]picket.Secret
	// Command starts it; it speaks over its standard streams, and is started
	// again when it ends. Defaults to none.
	Command []string
	// Env names the variables of this process that the command gets, beside PATH,
	// LANG, LC_ALL, TZ and TMPDIR. Defaults to none.
	Env []string
	// Timeout bounds a call of one of its tools. Defaults to 60 s; at most
	// picket.MaxExternalCall seconds.
	Timeout time.Duration
	// TLS is for a URL whose certificate no public authority has signed. Defaults
	// to what the system trusts.
	TLS *tls.Config
}

var upstreamNamePattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,31}$`)

// check refuses what cannot work.
func (u Upstream) check() error {
	if !upstreamNamePattern.MatchString(u.Name) {
		return fmt.Errorf("toolproxy: %q is not a name of an upstream: letters, digits and underscores, at most 32",
			u.Name)
	}
	if (u.URL == "") == (len(u.Command) == 0) {
		return fmt.Errorf("toolproxy: the upstream %s needs either a URL or a command", u.Name)
	}
	if at, err := url.Parse(u.URL); u.URL != "" &&
		(err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https") {
		return fmt.Errorf("toolproxy: the URL of the upstream %s is not http or https", u.Name)
	}
	return nil
}
