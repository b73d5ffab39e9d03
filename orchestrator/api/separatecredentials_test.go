package api_test

import (
	stdjson "encoding/json"
	"fmt"
	"testing"

	"github.com/picket-dev/picket"
)

func leasesOf(t *testing.T, a response) []picket.Lease {
	t.Helper()
	var got picket.Acquired
	if err := stdjson.Unmarshal([]byte(a.raw), &got); err != nil {
		t.Fatal(err)
	}
	return got.Leases
}

// An acquire that asks for two credentials gets two, and the same two when its
// reply was lost and it is repeated.
func TestSeparateCredentialsAreTheSameWhenRepeated(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		p.submit(`{"title":"x"}`)
		const body = `{"separateCredentials":true}`
		first := leasesOf(t, p.want(200, "POST", "/api/v1/leases", "agent", body, "Idempotency-Key", "k"))
		again := leasesOf(t, p.want(200, "POST", "/api/v1/leases", "agent", body, "Idempotency-Key", "k"))
		if len(first) != 1 || len(again) != 1 || first[0].LeaseToken != again[0].LeaseToken ||
			first[0].AgentToken != again[0].AgentToken {
			t.Fatalf("first %d leases, again %d, or other credentials", len(first), len(again))
		}
		for token, side := range map[picket.Secret]picket.LeaseSide{
			first[0].LeaseToken: picket.SideAdapter,
			first[0].AgentToken: picket.SideAgent,
		} {
			if held, err := p.sealer.OpenLeaseToken(token.Reveal()); err != nil || held.Side != side ||
				held.RunID != first[0].RunID {
				t.Errorf("the credential of the %s opens as %+v, %v", side, held, err)
			}
		}
		// The credential of before cannot be had for the same lease.
		p.wantCode(picket.CodeIdempotencyConflict, "POST", "/api/v1/leases", "agent", `{}`, "Idempotency-Key", "k")
	})
}

// Advancing takes the adapter's credential, and gives the next lease two.
func TestAdvanceWithSeparateCredentials(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		id := p.submit(`{"title":"x"}`)
		p.submit(`{"title":"y"}`)
		held := leasesOf(t, p.want(200, "POST", "/api/v1/leases", "agent", `{"separateCredentials":true}`))[0]
		body := func(token picket.Secret) string {
			return fmt.Sprintf(`{"leaseToken":%q,"output":1,"acquire":{"separateCredentials":true}}`, token.Reveal())
		}
		p.wantCode(picket.CodeForbidden, "POST", advancePath, "agent", body(held.AgentToken))
		if a := p.want(200, "GET", "/api/v1/tasks/"+id, "agent", ""); a.text("state") != "leased" {
			t.Errorf("an agent's credential has advanced the task to %s", a.text("state"))
		}
		next := leasesOf(t, p.want(200, "POST", advancePath, "agent", body(held.LeaseToken)))
		if len(next) != 1 || next[0].AgentToken == "" || next[0].AgentToken == next[0].LeaseToken {
			t.Errorf("the next leases are %+v", next)
		}
	})
}
