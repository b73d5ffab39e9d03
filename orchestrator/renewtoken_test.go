package orchestrator_test

import (
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A lease is renewed by its token for the key that has acquired it alone. Another key is told the same about a lease
// that lives, one that has ended, and one that never was.
func TestALeaseIsRenewedForItsKeyAlone(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		newKey := func(name string) string {
			k, err := f.CreateKey(f.Ctx, kit.Operator, picket.KeyRequest{Name: name, Scopes: []picket.Scope{"agent"}})
			kit.OK(t, err)
			return k.KeyID
		}
		own, other := newKey("own"), newKey("other")
		acquire := func(key string) picket.Lease {
			f.Submit(f.Ctx, kit.Operator, picket.TaskSpec{Title: "t"})
			leases, err := f.Acquire(f.Ctx, picket.Caller{Actor: key, Key: key}, picket.AcquireRequest{})
			kit.OK(t, err)
			return leases[0]
		}
		renew := func(key string, l picket.Lease) (picket.Renewal, error) {
			return f.RenewToken(f.Ctx, key, picket.LeaseToRenew{LeaseToken: l.LeaseToken, FencingToken: l.FencingToken})
		}
		lease, keyless := acquire(own), acquire("")
		r, err := renew(own, lease)
		kit.OK(t, err)
		if r.FencingToken != lease.FencingToken || r.LeaseTTLMs != lease.WindowMs {
			t.Errorf("renewed: %+v", r)
		}
		said := map[string]string{}
		refused := func(what, key string, l picket.Lease) {
			t.Helper()
			_, err := renew(key, l)
			kit.Refused(t, err, picket.CodeUnauthenticated)
			said[what] = err.Error()
		}
		refused("lives", other, lease)
		refused("no key", "", lease)
		refused("acquired without a key", other, keyless)
		refused("acquired and renewed without a key", "", keyless)
		forged := lease
		forged.LeaseToken += "x"
		refused("forged", other, forged)
		_, err = f.Expire(f.Ctx, kit.Operator, lease.TaskID, "")
		kit.OK(t, err)
		refused("ended", other, lease)
		_, err = renew(own, lease)
		kit.Refused(t, err, picket.CodeLeaseExpired)
		for what, text := range said {
			if text != said["forged"] {
				t.Errorf("%s: it says %q, and %q of a forged token", what, text, said["forged"])
			}
		}
		page, err := f.Leases(f.Ctx)
		kit.OK(t, err)
		for _, l := range page.Leases {
			if l.Renewals != 0 {
				t.Errorf("a refusal has renewed %s", l.TaskID)
			}
		}
	})
}
