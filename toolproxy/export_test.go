package toolproxy

import (
	"context"
	"log/slog"
)

// RefreshLoop is the loop that reads the lists of an upstream, which says that they
// have changed by the function it returns.
func RefreshLoop(ctx context.Context, gone <-chan struct{}, read func()) (loop, said func()) {
	u := newUpstreamClient(Upstream{Name: "up"}, slog.New(slog.DiscardHandler), nil, nil)
	return func() { u.refreshLoop(ctx, gone, read) }, u.markChanged
}
