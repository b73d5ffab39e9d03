package agents

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/picket-dev/picket"
)

// probeTimeout bounds the questions to the tool proxy before an agent starts.
const probeTimeout = 5 * time.Second

// credential opens the tool proxy for the agent.
func (e *Setup) credential() picket.Secret {
	if e.outside != nil {
		return e.outside.Capability
	}
	return e.run.Lease.AgentCredential()
}

// Metered reports whether all model calls of the agent go through the tool proxy, as far as the adapter arranges
// that. It is known after [Setup.ProbeModels]. An agent that can choose among several vendors is never metered.
func (e *Setup) Metered() bool {
	vendor := e.preset.Vendor()
	return vendor != "" && e.models[vendor]
}

// Vendor is the vendor of models that such an agent calls and the tool proxy can serve; empty: there is none, or
// several.
func (p Preset) Vendor() string {
	probes := p.spec().proxyProbes
	if len(probes) != 1 {
		return ""
	}
	for vendor := range probes {
		return vendor
	}
	return ""
}

// MeteredAt asks a tool proxy, without a credential, whether it serves the vendor of such an agent. known is false if
// the proxy did not answer that.
func (p Preset) MeteredAt(ctx context.Context, client *http.Client, proxyURL string) (metered, known bool) {
	vendor := p.Vendor()
	if vendor == "" {
		return false, true
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	url := strings.TrimSuffix(proxyURL, "/") + "/llm/" + vendor + p.spec().proxyProbes[vendor]
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		return false, false
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return false, false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusUnauthorized, res.StatusCode < 500
}
