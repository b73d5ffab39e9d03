package orchestrator

import (
	"cmp"
	"context"

	"github.com/picket-dev/picket"
)

// Policies pages through the agent names that have or had a wake policy, and those that have only a file, by
// name. It does not compare the files first, so it shows an edited file after at most two seconds.
func (e *Engine) Policies(ctx context.Context, q picket.PolicyQuery) (picket.PolicyPage, error) {
	limit, err := pageLimit(q.Limit, 50, 100)
	if q.After != "" {
		err = cmp.Or(err, picket.CheckName("after", q.After))
	}
	if err != nil {
		return picket.PolicyPage{}, err
	}
	r := e.run(ctx, "policies", q.After, limit)
	var v struct {
		Rows []policyState `reply:"rows"`
		More bool          `reply:"more"`
	}
	r.Decode(&v)
	page := picket.PolicyPage{Policies: make([]picket.PolicySummary, len(v.Rows))}
	for i, row := range v.Rows {
		p := e.policyNow(row.Name, row.stored())
		page.Policies[i] = picket.PolicySummary{AgentName: p.AgentName, Present: p.Present, Valid: p.Valid,
			Enabled: p.Enabled, Summary: p.Summary, Digest: p.Digest, WrittenAt: p.WrittenAt, File: p.File}
		if v.More {
			page.Next = row.Name
		}
	}
	return page, r.Err
}

// PolicyVersions reads the wake policy of an agent name as the store has it, and as its file has it. They
// differ only if the policy that counts has a File.
func (e *Engine) PolicyVersions(ctx context.Context, name string) (picket.PolicyVersions, error) {
	s, err := e.storedPolicy(ctx, name, "")
	v := picket.PolicyVersions{Now: e.policyNow(name, s), Stored: e.policyOf(name, s.row)}
	v.InFile = v.Stored
	if f := s.differing(); f != nil {
		v.InFile = e.policyInFile(name, name+"/HEARTBEAT.md", f)
	}
	return v, err
}
