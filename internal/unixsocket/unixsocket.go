// Package unixsocket lets clients send HTTP requests to a server that listens on a Unix socket. The
// URL of such a server is unix: and the path of the socket.
package unixsocket

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
)

// MaxPath is the most bytes that the path of a socket may have, on Linux.
const MaxPath = 107

const prefix = "unix:"

// URL is the URL of the server that listens on the socket with this absolute path.
func URL(path string) string { return prefix + path }

// IsURL reports whether text is the URL of a Unix socket, right or wrong.
func IsURL(text string) bool { return strings.HasPrefix(text, prefix) }

// Path returns the absolute path of the socket in a URL such as unix:/run/picket/api.sock. A
// relative path is taken from the current directory.
func Path(url string) (string, error) {
	path, ok := strings.CutPrefix(url, prefix)
	if !ok || path == "" {
		return "", fmt.Errorf("%q is not the URL of a Unix socket such as unix:/run/picket/api.sock", url)
	}
	if strings.HasPrefix(path, "~") {
		return "", fmt.Errorf("%q: the shell does not replace ~ there; write the whole path, or $HOME", url)
	}
	if strings.ContainsRune(path, 0) {
		return "", errors.New("the path of a Unix socket holds a zero byte")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if len(path) > MaxPath {
		return "", fmt.Errorf("the path %s has %d bytes, and that of a Unix socket has at most %d; choose a shorter one",
			path, len(path), MaxPath)
	}
	return path, nil
}

// RequestURL is the beginning of the URLs of requests to a server: that of a Unix socket in the form
// that a transport takes after Register, and any other unchanged.
func RequestURL(url string) (string, error) {
	if !IsURL(url) {
		return url, nil
	}
	path, err := Path(url)
	if err != nil {
		return "", err
	}
	return prefix + "//" + hex.EncodeToString([]byte(path)), nil
}

// CurlArguments are those of curl for a request to a URL that begins as RequestURL says.
func CurlArguments(url string) []string {
	rest, ok := strings.CutPrefix(url, prefix+"//")
	if !ok {
		return []string{url}
	}
	host, route, _ := strings.Cut(rest, "/")
	path, err := hex.DecodeString(host)
	if err != nil {
		return []string{url}
	}
	return []string{"--unix-socket", string(path), "http://localhost/" + route}
}

// Register lets t send requests to the URLs that RequestURL returns, with the timeouts of t and
// through no proxy. It panics if it is called twice for one transport.
func Register(t *http.Transport) {
	sockets := t.Clone()
	sockets.Proxy = nil
	sockets.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		path, err := hex.DecodeString(host)
		if err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, "unix", string(path))
	}
	t.RegisterProtocol(strings.TrimSuffix(prefix, ":"), &transport{sockets})
}

// transport sends requests whose host is the path of a socket in hexadecimal digits.
type transport struct{ sockets *http.Transport }

// RoundTrip sends a request to the socket, as one to localhost.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := r.WithContext(r.Context())
	at := *r.URL
	at.Scheme = "http"
	sent.URL, sent.Host = &at, "localhost"
	res, err := t.sockets.RoundTrip(sent)
	if res != nil {
		res.Request = r
	}
	return res, err
}

// CloseIdleConnections closes connections that no request uses.
func (t *transport) CloseIdleConnections() { t.sockets.CloseIdleConnections() }
