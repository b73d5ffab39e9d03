package adapter

import (
	"strconv"

	"github.com/picket-dev/picket"
)

// leaseEnv are the variables that carry the lease to the agent.
func leaseEnv(lease picket.Lease, p runPaths, proxyURL string) []string {
	env := []string{
		"PICKET_TASK_ID=" + lease.TaskID,
		"PICKET_RUN_ID=" + lease.RunID,
		"PICKET_FENCING_TOKEN=" + strconv.FormatInt(lease.FencingToken, 10),
		"PICKET_LEASE_TOKEN=" + lease.AgentCredential().Reveal(),
		"PICKET_LEASE_EXPIRES_AT=" + lease.LeaseExpiresAt.String(),
		"PICKET_BUDGET_TOKENS=" + strconv.FormatInt(lease.BudgetEnvelope.Tokens, 10),
		"PICKET_BUDGET_USD=" + lease.BudgetEnvelope.USD.String(),
		"PICKET_WORKSPACE=" + p.workspace,
		"PICKET_PROXY_URL=" + proxyURL,
		"PICKET_TASK_FILE=" + p.taskFile,
		"PICKET_LAST_REPORT=" + p.lastReport,
	}
	if lease.MCPURL != "" {
		env = append(env, "PICKET_MCP_URL="+lease.MCPURL)
	}
	if trace := lease.Task.Trace; trace != nil {
		env = append(env, "TRACEPARENT="+trace.Parent)
		if trace.State != "" {
			env = append(env, "TRACESTATE="+trace.State)
		}
	}
	return env
}
