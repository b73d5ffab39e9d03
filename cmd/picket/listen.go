package main

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"syscall"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/settings"
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

// listen opens the address of a server. Anything that is not this machine
// alone needs TLS: keys and leases travel in headers. A server with a console
// takes its port on every loopback address.
func listen(cfg settings.Settings, guard *web.Guard, console bool) (l net.Listener, url string, err error) {
	addr, cert, key := cfg.Listen, cfg.TLS.Cert, cfg.TLS.Key
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, "", exit.Usagef("listen: %v", err)
	}
	if cert == "" && !isLoopback(host) {
		return nil, "", picket.Refuse(exit.CodeUsage,
			"Add --tls-cert and --tls-key, or listen on 127.0.0.1 and put a TLS proxy in front.",
			"refusing to listen on %s without TLS: keys would cross the network in the clear", addr)
	}
	open := listenOn
	if console && cert == "" && cfg.Console.HostPerLogin {
		open = listenOnLoopbacks
	}
	if l, err = open(addr); err != nil {
		return nil, "", err
	}
	l = guard.Listen(l)
	if cert == "" {
		return l, "http://" + l.Addr().String(), nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		l.Close()
		return nil, "", exit.Usagef("the TLS certificate cannot be used: %v", err)
	}
	secured := tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	return secured, "https://" + l.Addr().String(), nil
}

func listenOn(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, addressTakenError(addr, err)
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
