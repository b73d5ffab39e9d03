package main

import (
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/reaper/webhooks"
)

// newSender returns what posts to webhooks.
func (h serverProcess) newSender() (*webhooks.Sender, error) {
	return webhooks.NewSender(webhooks.SenderConfig{
		Allow:     h.cfg.Notify.Allow,
		PublicURL: h.cfg.PublicURL,
	})
}

func webhookQueues(store *orchestrator.Store) map[string]webhooks.Queue {
	queues := map[string]webhooks.Queue{}
	for _, e := range store.Engines() {
		queues[e.Namespace()] = e
	}
	return queues
}
