package mcp

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// refreshLoop reads the lists again whenever the upstream says that they have changed,
// and now and then on its own, until the connection is gone. Between two readings
// is a pause, which doubles for as long as the upstream does not stop saying so:
// what it says during a pause is looked at once, after it.
func (u *upstreamClient) refreshLoop(ctx context.Context, gone <-chan struct{}, read func()) {
	again := time.NewTicker(refreshInterval)
	defer again.Stop()
	last := time.Now()
	for pause := minRefreshPause; ; last = time.Now() {
		select {
		case <-ctx.Done():
			return
		case <-gone:
			return
		case <-u.listsChanged:
		case <-again.C:
		}
		if quiet := time.Since(last); quiet >= min(10*pause, backoffResetAfter) {
			pause = minRefreshPause
		} else if sleepUnlessGone(ctx, gone, pause-quiet) {
			pause = min(2*pause, maxBackoff)
		} else {
			return
		}
		select {
		case <-u.listsChanged: // said during the pause
		default:
		}
		read()
	}
}

// sleepUnlessGone waits, if the connection lasts as long.
func sleepUnlessGone(ctx context.Context, gone <-chan struct{}, pause time.Duration) bool {
	over := time.NewTimer(pause)
	defer over.Stop()
	select {
	case <-ctx.Done():
	case <-gone:
	case <-over.C:
		return true
	}
	return false
}

// markChanged asks for the lists to be read again.
func (u *upstreamClient) markChanged() {
	select {
	case u.listsChanged <- struct{}{}:
	default: // they will be read already
	}
}

// refresh reads what the upstream offers.
func (u *upstreamClient) refresh(ctx context.Context, l *upstreamConn) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	caps := l.session.InitializeResult().Capabilities
	if caps == nil {
		caps = &mcp.ServerCapabilities{}
	}
	o := upstreamCatalog{
		canComplete:  caps.Completions != nil,
		canSubscribe: caps.Resources != nil && caps.Resources.Subscribe,
	}
	var err error
	if caps.Tools != nil {
		if o.tools, err = collect(u, l.session.Tools(ctx, nil)); err != nil {
			return fmt.Errorf("list tools: %w", err)
		}
	}
	if caps.Prompts != nil {
		if o.prompts, err = collect(u, l.session.Prompts(ctx, nil)); err != nil {
			return fmt.Errorf("list prompts: %w", err)
		}
	}
	if caps.Resources != nil {
		if o.resources, err = collect(u, l.session.Resources(ctx, nil)); err != nil {
			return fmt.Errorf("list resources: %w", err)
		}
		if o.templates, err = collect(u, l.session.ResourceTemplates(ctx, nil)); err != nil {
			u.log.Debug("an upstream has no resource templates", "err", untrustedError{err})
		}
	}
	u.publish(u, o)
	return nil
}

// collect reads a list, as far as it is looked at: an upstream may have no end
// of pages.
func collect[T any](u *upstreamClient, items func(func(*T, error) bool)) (list []*T, err error) {
	size := 0
	for item, err := range items {
		if err != nil {
			return nil, err
		}
		if item == nil { // it said null
			continue
		}
		raw, err := stdjson.Marshal(item)
		if err != nil {
			return nil, err
		}
		if size += len(raw); len(list) == maxListed || size > maxListedBytes {
			u.log.Warn("an upstream's list is too long: the rest is left out", "kept", len(list))
			break
		}
		list = append(list, item)
	}
	return list, nil
}
