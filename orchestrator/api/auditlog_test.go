package api_test

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// The audit log is read in pages by a cursor, like the event log, and has no
// event of an agent.
func TestAuditLogInPages(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		for range 5 {
			p.submit(`{"title":"x"}`)
			p.lease()
		}
		kind := "/api/v1/audit?limit=2&type=" + picket.EventTaskSubmitted
		seen, after := 0, "0"
		for {
			a := p.want(200, "GET", kind+"&after="+after, "operator", "")
			n := strings.Count(a.raw, `"`+picket.EventTaskSubmitted+`"`)
			if seen += n; n == 0 {
				break
			}
			after = a.text("next")
		}
		if seen != 5 {
			t.Errorf("%d submissions were read, want 5", seen)
		}
		all := p.want(200, "GET", "/api/v1/audit?limit=1000", "admin", "").raw
		if strings.Contains(all, picket.EventTaskLeased) || !strings.Contains(all, picket.EventKeyCreated) {
			t.Errorf("the audit log has %s", all)
		}
		p.wantCode(picket.CodeForbidden, "GET", "/api/v1/audit", "reviewer", "")
		p.wantCode(picket.CodeValidation, "GET", "/api/v1/audit?type=task.nonsense", "operator", "")
	})
}
