package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
)

// agentsFindings are about the workers that the server knows. There are none if the server is of a
// version without a registry.
func agentsFindings(ctx context.Context, s *cli.Connection, stats picket.Stats) []Finding {
	if stats.Agents == nil {
		return nil
	}
	var parts []string
	for _, status := range []picket.AgentStatus{picket.AgentActive, picket.AgentUnhealthy, picket.AgentDraining} {
		if n := stats.Agents[status]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, status))
		}
	}
	f := Finding{Subject: "agents", Grade: "ok", Detail: strings.Join(parts, ", ")}
	if len(parts) == 0 {
		f.Detail = "none at work; `picket run` brings its own"
	}
	if stats.Agents[picket.AgentUnhealthy] > 0 {
		f.Grade, f.Remedy = "warn", "See who is silent: picket agent list --status unhealthy"
	}
	return append([]Finding{f}, poolFindings(ctx, s)...)
}

// poolFindings are the pools with fewer active members than their server's
// picket.yaml wants.
func poolFindings(ctx context.Context, s *cli.Connection) []Finding {
	pools, _ := s.Pools.List(ctx)
	var found []Finding
	for _, p := range pools {
		active, a := p.Members[picket.AgentActive], p.Advisory
		if a != nil && a.MinInstances != nil && active < *a.MinInstances {
			found = append(found, Finding{"pool " + p.RoleID, "warn",
				fmt.Sprintf("%d active, picket.yaml advises %s", active, cli.AdviceText(a)),
				"picket adapter --as NAME, for the entry of this role"})
		}
	}
	return found
}
