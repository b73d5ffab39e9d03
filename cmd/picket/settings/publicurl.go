package settings

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// PublicBase returns the base URL under which clients reach a server that listens at the URL own: public_url, or else
// own. It ends without a slash.
func (s Settings) PublicBase(own string) string {
	if s.PublicURL != "" {
		return s.PublicURL
	}
	return normalPublicURL(own)
}

// ServedHosts returns the names that requests may be addressed to, in addition to localhost and IP addresses:
// allowed_hosts and the host of public_url.
func (s Settings) ServedHosts() []string {
	hosts := slices.Clone(s.AllowedHosts)
	if u, err := url.Parse(s.PublicURL); err == nil && u.Hostname() != "" {
		hosts = append(hosts, u.Hostname())
	}
	return hosts
}

// normalPublicURL writes scheme and host in lower case, and drops the slashes at the end. It returns what is not the
// URL of a server as it is.
func normalPublicURL(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return address
	}
	u.Host = strings.ToLower(u.Host)
	return strings.TrimRight(u.String(), "/")
}

// checkPublicURL takes a URL to which the paths of the server can be appended.
func checkPublicURL(address string) error {
	u, err := parseWebURL(address)
	if err != nil {
		return err
	}
	base := strings.TrimRight(u.Path, "/")
	switch {
	case strings.ContainsAny(address, "?#"):
		return fmt.Errorf("%q has a query or a fragment, and paths are appended to it: write it without ? and #", address)
	case base != "" && path.Clean(base) != base || u.RawPath != "" || strings.ContainsAny(base, `\%`):
		return fmt.Errorf("%q has a path that proxies rewrite: write it without //, . and .. and without escapes", address)
	}
	return nil
}

// parseWebURL takes an absolute URL of the web that has no password in it.
func parseWebURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, fmt.Errorf("%q is not a URL such as https://agents.example.com", address)
	}
	if u.User != nil {
		return nil, errors.New("the URL has a user name or a password, and others can read it: write it without them")
	}
	if _, err := strconv.ParseUint(u.Port(), 10, 16); err != nil && u.Port() != "" {
		return nil, fmt.Errorf("%q has the port %s, which does not exist", address, u.Port())
	}
	return u, nil
}
