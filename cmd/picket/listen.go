package main

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/files"
	"github.com/picket-dev/picket/internal/unixsocket"
	"github.com/picket-dev/picket/internal/web"
)

// connectionGuard bounds connections by the settings and by the limit of file
// descriptors of this process. The Go runtime has raised the soft limit to the
// hard one.
func connectionGuard(cfg settings.Settings, log *slog.Logger) *web.Guard {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		files.Cur = 1024
	}
	c := cfg.Connections
	return web.NewGuard(web.LimitsFor(int(min(files.Cur, 1<<20)), web.Limits{
		Connections: c.Max, Unknown: c.Unknown, UnknownPerAddress: c.UnknownPerAddress,
		PerKey: c.PerKey, PerLease: c.PerLease,
	}), log)
}

// endpoint is an address on which a server listens.
type endpoint struct {
	net.Listener
	url     string // http://, https:// or unix:
	only    bool   // whether it serves agents only: the tool proxy and no API
	console bool   // whether it serves the console
}

// endpoints are those of one server process. The first is the one that clients are told.
type endpoints []endpoint

// url is where clients reach the server.
func (all endpoints) url() string { return all[0].url }

// proxyURL is where agents reach the tool proxy of the same process. It is empty if there is only
// a Unix socket.
func (all endpoints) proxyURL() string {
	for _, e := range all {
		if !unixsocket.IsURL(e.url) {
			return e.url
		}
	}
	return ""
}

func (all endpoints) close() {
	for _, e := range all {
		_ = e.Close()
	}
}

// listen opens the addresses of a server, those of TCP first. Agents reach a tool proxy over TCP
// only. If nothing else of the server uses TCP, the tool proxy gets a free port of this machine. Its
// number is kept in portFile.
func listen(cfg settings.Settings, guard *web.Guard, r roles, portFile string) (all endpoints, err error) {
	defer func() {
		if err != nil {
			all.close()
		}
	}()
	if len(cfg.Listen) == 0 {
		return nil, picket.Refuse(exit.CodeUsage, "Write --listen 127.0.0.1:7070, or leave it out.",
			"the address to listen on is empty")
	}
	var sockets, taken []string
	for _, address := range cfg.Listen {
		if unixsocket.IsURL(address) {
			sockets = append(sockets, address)
			continue
		}
		if slices.Contains(taken, address) {
			continue
		}
		raw, err := listenTCP(cfg, address, r.orchestrator)
		if err != nil {
			return all, err
		}
		taken = append(taken, addressesOf(raw)...)
		all = append(all, endpoint{Listener: guard.Listen(raw), console: r.orchestrator})
	}
	if all, err = all.secured(cfg); err != nil {
		return all, err
	}
	overTCP := len(all) > 0
	if r.toolproxy && !r.orchestrator && !overTCP {
		return all, picket.Refuse(exit.CodeUsage, "Add --listen 127.0.0.1:7071.",
			"agents reach the tool proxy over TCP, and no TCP address is given")
	}
	for _, address := range sockets {
		path, err := unixsocket.Path(address)
		if err != nil {
			return all, exit.Usagef("listen: %v", err)
		}
		l, err := listenOnUnix(path)
		if err != nil {
			return all, err
		}
		all = append(all, endpoint{Listener: guard.Listen(l), url: unixsocket.URL(path)})
	}
	if r.toolproxy && !overTCP {
		l, err := listenOnKeptPort(portFile)
		if err != nil {
			return all, err
		}
		all = append(all, endpoint{Listener: guard.Listen(l), url: "http://" + l.Addr().String(), only: true})
	}
	return all, nil
}

// listenTCP opens an address. Anything that is not this machine alone needs TLS: keys and leases
// travel in headers. A server with a console takes its port on every loopback address.
func listenTCP(cfg settings.Settings, addr string, console bool) (net.Listener, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, exit.Usagef("listen: %v", err)
	}
	if cfg.TLS.Cert == "" && !isLoopback(host) {
		return nil, picket.Refuse(exit.CodeUsage,
			"Add --tls-cert and --tls-key, or listen on 127.0.0.1 and put a TLS proxy in front.",
			"refusing to listen on %s without TLS: keys would cross the network in the clear", addr)
	}
	if console && cfg.TLS.Cert == "" && cfg.Console.HostPerLogin {
		return listenOnLoopbacks(addr)
	}
	return listenOn(addr)
}

// secured puts TLS on TCP endpoints, if there is a certificate, and names their URLs.
func (all endpoints) secured(cfg settings.Settings) (endpoints, error) {
	scheme, config := "http://", (*tls.Config)(nil)
	if cfg.TLS.Cert != "" && len(all) > 0 {
		pair, err := tls.LoadX509KeyPair(cfg.TLS.Cert, cfg.TLS.Key)
		if err != nil {
			return all, exit.Usagef("the TLS certificate cannot be used: %v", err)
		}
		scheme = "https://"
		config = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	for i, e := range all {
		all[i].url = scheme + e.Addr().String()
		if config != nil {
			all[i].Listener = tls.NewListener(e.Listener, config)
		}
	}
	return all, nil
}

// addressesOf are all addresses on which l listens.
func addressesOf(l net.Listener) (addresses []string) {
	several, ok := l.(*multiListener)
	if !ok {
		return []string{l.Addr().String()}
	}
	for _, one := range several.all {
		addresses = append(addresses, one.Addr().String())
	}
	return addresses
}

func listenOn(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, addressTakenError(addr, err)
	}
	return l, nil
}

// listenOnKeptPort listens on the loopback port whose number is in a file, so that agents find it again
// after a restart of the server. If it is taken, another free port is kept there.
func listenOnKeptPort(file string) (net.Listener, error) {
	if text, err := os.ReadFile(file); err == nil {
		if l, err := listenOn(net.JoinHostPort("127.0.0.1", strings.TrimSpace(string(text)))); err == nil {
			return l, nil
		}
	}
	l, err := listenOn("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if err := files.WritePrivate(file, []byte(port+"\n")); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func addressTakenError(addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return picket.Refuse(picket.CodeStateConflict,
			"End what listens there, or pick another port: --listen 127.0.0.1:0 takes a free one.", "%s is taken", addr)
	}
	return exit.Usagef("cannot listen on %s: %v", addr, err)
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// addressList is the value of a flag that may be repeated. Its text is that of the setting.
type addressList []string

// String is the addresses, separated by commas.
func (a *addressList) String() string { return strings.Join(*a, ",") }

// Set adds an address.
func (a *addressList) Set(text string) error {
	*a = append(*a, text)
	return nil
}

// Type is what help shows for the value.
func (a *addressList) Type() string { return "string" }
