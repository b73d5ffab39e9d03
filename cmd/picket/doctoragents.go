package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
)

// agentsFindings tell of the workers the server knows: nothing where the key may
// not see them, or where the server is of a version without a registry.
func agentsFindings(ctx context.Context, cmd *cobra.Command) []finding {
	s, err := connect(cmd)
	if err != nil {
		return nil
	}
	var parts []string
	silent := 0
	for _, status := range []picket.AgentStatus{picket.AgentActive, picket.AgentUnhealthy, picket.AgentDraining} {
		var page picket.AgentPage
		err := s.get(ctx, "/api/v1/agents?limit=1&status="+string(status), &page, nil)
		switch {
		case errors.Is(err, picket.CodeForbidden), errors.Is(err, picket.CodeNotFound):
			return nil
		case err != nil:
			return []finding{{"agents", "fail", explain(err), remedyOf(err)}}
		case page.Total > 0:
			parts = append(parts, fmt.Sprintf("%d %s", page.Total, status))
		}
		if status == picket.AgentUnhealthy {
			silent = page.Total
		}
	}
	f := finding{what: "agents", grade: "ok", detail: strings.Join(parts, ", ")}
	if len(parts) == 0 {
		f.detail = "none registered; `picket run` brings its own"
	}
	if silent > 0 {
		f.grade, f.remedy = "warn", "See who is silent: picket agent list --status unhealthy"
	}
	return append([]finding{f}, poolFindings(ctx, s)...)
}

// poolFindings are the pools with fewer active members than their server's
// picket.yaml wants.
func poolFindings(ctx context.Context, s *server) []finding {
	var list picket.PoolList
	if s.get(ctx, "/api/v1/pools", &list, nil) != nil {
		return nil
	}
	var found []finding
	for _, p := range list.Pools {
		active, a := p.Members[picket.AgentActive], p.Advisory
		if a != nil && a.MinInstances != nil && active < *a.MinInstances {
			found = append(found, finding{"pool " + p.RoleID, "warn", fmt.Sprintf("%d active, picket.yaml advises %s", active, adviceText(a)),
				"picket adapter --as NAME, for the entry of this role"})
		}
	}
	return found
}
