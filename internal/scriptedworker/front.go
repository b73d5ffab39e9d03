package scriptedworker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/picket-dev/picket"
)

// Front is a reverse proxy before a server. It adds a client's key to requests that have none, for test kits that send
// some of their requests without one. Everybody who reaches it uses the key, so it listens on this machine alone.
type Front struct {
	listener net.Listener
	server   *http.Server
}

// NewFront listens on an address such as 127.0.0.1:9999. Its URL has to be the public_url of the server, because agent
// cards name that.
func NewFront(addr, server string, key picket.Secret) (*Front, error) {
	target, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("%q is not an address of this machine such as 127.0.0.1:9999, and everybody who reaches "+
			"it would use the key", addr)
	}
	if key == "" {
		return nil, errors.New("the key of a client is required, which is added to requests without one")
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		if r.In.Header.Get("X-API-Key") == "" && r.In.Header.Get("Authorization") == "" {
			r.Out.Header.Set("X-API-Key", key.Reveal())
		}
	}}
	f := &Front{listener: l}
	f.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(f.only(proxy))}
	return f, nil
}

// only serves requests to its own address. A page in a browser that reaches it under another name gets nothing.
func (f *Front) only(proxy http.Handler) http.HandlerFunc {
	_, port, _ := net.SplitHostPort(f.Addr())
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Host != f.Addr() && r.Host != net.JoinHostPort("localhost", port) {
			http.Error(w, "send the requests to http://"+f.Addr(), http.StatusMisdirectedRequest)
			return
		}
		proxy.ServeHTTP(w, r)
	}
}

// Addr is the address at which it listens.
func (f *Front) Addr() string { return f.listener.Addr().String() }

// Serve passes requests on until ctx ends.
func (f *Front) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = f.server.Close() })
	defer stop()
	err := f.server.Serve(f.listener)
	if errors.Is(err, http.ErrServerClosed) {
		return context.Cause(ctx)
	}
	return err
}
