package main

import (
	"fmt"
	"strings"

	"github.com/picket-dev/picket/internal/outbound"
	"github.com/picket-dev/picket/notify"
	"github.com/picket-dev/picket/orchestrator"
)

// newSender is how this process posts to webhooks.
func (h serverProcess) newSender() (*notify.Sender, error) {
	return notify.NewSender(notify.SenderConfig{Allow: h.cfg.list("notify.allow"), PublicURL: h.cfg.text("public_url")})
}

func webhookQueues(store *orchestrator.Store) map[string]notify.Queue {
	queues := map[string]notify.Queue{}
	for _, e := range store.Engines() {
		queues[e.Namespace()] = e
	}
	return queues
}

// list reads a key that holds several values, separated by commas.
func (s settings) list(key string) []string { return parts(s.text(key)) }

func parts(text string) (out []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

func checkDestinations(text string) error {
	if _, err := outbound.New(outbound.Config{Allow: parts(text), AllowAllPublic: true}); err != nil {
		return fmt.Errorf("%w; write host:port, several separated by commas", err)
	}
	return nil
}
