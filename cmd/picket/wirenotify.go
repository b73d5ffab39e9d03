package main

import (
	"github.com/picket-dev/picket/notify"
	"github.com/picket-dev/picket/orchestrator"
)

// newSender is how this process posts to webhooks.
func (h serverProcess) newSender() (*notify.Sender, error) {
	return notify.NewSender(notify.SenderConfig{Allow: h.cfg.List("notify.allow"), PublicURL: h.cfg.Text("public_url")})
}

func webhookQueues(store *orchestrator.Store) map[string]notify.Queue {
	queues := map[string]notify.Queue{}
	for _, e := range store.Engines() {
		queues[e.Namespace()] = e
	}
	return queues
}
