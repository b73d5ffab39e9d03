package toolproxy

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/outbound"
)

// TakeAsPublic makes http_request believe that these addresses are public.
func (p *Proxy) TakeAsPublic(addresses ...netip.Addr) {
	for _, s := range p.sources {
		if web, ok := s.(*httpSource); ok {
			web.guard, _ = outbound.New(outbound.Config{
				Allow:    web.cfg.Allow,
				Setting:  "tools.http_request.allow",
				Resolver: web.cfg.Resolver,
				Public:   func(ip netip.Addr) bool { return slices.Contains(addresses, ip) || outbound.IsPublic(ip) },
			})
			web.transport = web.guard.Transport(web.cfg.TLS)
			web.once = outbound.Once{Base: web.transport}
		}
	}
}

// ForgetConnections makes the next http_request dial again.
func (p *Proxy) ForgetConnections() {
	for _, s := range p.sources {
		if web, ok := s.(*httpSource); ok {
			web.close()
		}
	}
}

// MarksTable is the statement that makes a table of high-water marks.
func MarksTable(name string) string { return fenceMarks{table: name}.createSQL() }

// RaiseMark is the statement that a write has to pass.
func RaiseMark(name string) string { return fenceMarks{table: name}.raiseSQL() }

// RefreshLoop is the loop that reads the lists of an upstream, which says that they
// have changed by the function it returns.
func RefreshLoop(ctx context.Context, gone <-chan struct{}, read func()) (loop, said func()) {
	u := newUpstreamClient(Upstream{Name: "up"}, slog.New(slog.DiscardHandler), nil, nil)
	return func() { u.refreshLoop(ctx, gone, read) }, u.markChanged
}

// MarkMACs are those of a writer for a database, as Postgres reads them.
func MarkMACs(s *picket.Sealer, database, task string, token int64, lease string) string {
	return newFenceMarks(s, database, "picket_fence").macs(writerIdentity{task: task, token: token, lease: lease})
}
