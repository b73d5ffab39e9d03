package webhooks

import (
	"net/http"

	"github.com/picket-dev/picket"
)

// SetTransport makes a sender post another way, without a network.
func (s *Sender) SetTransport(way http.RoundTripper) { s.transport = way }

// Body is what a target is sent of an event.
func (s *Sender) Body(format picket.WebhookFormat, ev picket.Event) ([]byte, error) {
	return s.body(format, ev)
}
