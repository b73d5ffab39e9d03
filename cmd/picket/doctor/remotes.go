package doctor

import (
	"context"
	"os"
	"time"

	"github.com/picket-dev/picket/cmd/picket/a2a/foreign"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

const remoteTimeout = 5 * time.Second

// remoteFindings tell whether the foreign agents of picket.yaml answer, and accept the credential.
func remoteFindings(ctx context.Context, cfg settings.Settings) (found []Finding) {
	for _, e := range cfg.AgentEntries() {
		if e.Remote.URL != "" {
			found = append(found, remoteFinding(ctx, e))
		}
	}
	return found
}

func remoteFinding(ctx context.Context, e settings.Agent) Finding {
	ctx, stop := context.WithTimeout(ctx, remoteTimeout)
	defer stop()
	subject := "agents." + e.Name + ".remote"
	if name := e.Remote.TokenEnv; name != "" && os.Getenv(name) == "" {
		return Finding{subject, "warn", "not checked: " + name + " is not set here, and a worker needs it",
			"Set it to the credential for " + e.Remote.URL + ", and run picket doctor again."}
	}
	r, err := foreign.NewRemote(ctx, e)
	if err != nil {
		return Failed(subject, err)
	}
	defer r.Close()
	name, err := r.Check(ctx)
	if err != nil {
		return Failed(subject, err)
	}
	return Finding{subject, "ok", name + " answers at " + e.Remote.URL, ""}
}
