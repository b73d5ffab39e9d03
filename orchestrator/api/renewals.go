package api

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// maxRenewalsBody bounds the body of a renewal of several leases: each has up to 1 KiB.
const maxRenewalsBody = picket.MaxRenewals << 10

// renewalsBody is the body as it is read. Each lease is decoded on its own, so that a mistake in one
// does not affect the others.
type renewalsBody struct {
	Leases []picket.RawJSON `json:"leases"`
}

// renewalsAnswer has a picket.Renewal or an error object for each lease, in the order of the request.
type renewalsAnswer struct {
	Leases []picket.RawJSON `json:"leases"`
}

// renewLeases renews leases that the key of the caller has acquired.
func (a *API) renewLeases(r request) error {
	if err := r.noQuery(); err != nil {
		return err
	}
	body, _, err := web.Decode[renewalsBody](r.Context, maxRenewalsBody)
	if err != nil {
		return err
	}
	if n := len(body.Leases); n < 1 || n > picket.MaxRenewals {
		return picket.Invalid("/leases", fmt.Sprintf("Send 1 to %d leases; send more in another request.", picket.MaxRenewals),
			"leases has %d items, and 1 to %d are allowed", n, picket.MaxRenewals)
	}
	answer := renewalsAnswer{Leases: make([]picket.RawJSON, len(body.Leases))}
	errs := make([]error, len(body.Leases))
	var group sync.WaitGroup
	for i, lease := range body.Leases {
		group.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					errs[i] = web.Panicked(v)
				}
			}()
			answer.Leases[i], errs[i] = r.renewLease(i, lease)
		})
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			answer.Leases[i] = picket.RawJSON(web.ProblemOf(r.Context, a.log, err).Body)
		}
	}
	return web.JSON(r.Context, http.StatusOK, answer)
}

// maxRenewalAnswer bounds the answer about one lease in bytes, so that an agent with large commands does not make
// the answer too large for the other leases.
const maxRenewalAnswer = 64 << 10

// renewLease renews one lease of a request, and returns its renewal.
func (r request) renewLease(i int, raw picket.RawJSON) (picket.RawJSON, error) {
	var lease picket.LeaseToRenew
	if web.Unmarshal(raw, &lease) != nil { // its error may quote the credential
		return nil, picket.Invalid(fmt.Sprintf("/leases/%d", i),
			`Send an object such as {"leaseToken":"pkl_…","fencingToken":1}.`,
			"the item is not an object with a leaseToken and, optionally, a fencingToken")
	}
	renewal, err := r.engine.RenewToken(r.ctx(), r.who.KeyID, lease)
	if err != nil {
		return nil, err
	}
	answer, err := renewal.AppendJSON(nil)
	if err != nil {
		return nil, fmt.Errorf("encode renewal: %w", err)
	}
	if len(answer) > maxRenewalAnswer {
		return nil, picket.Refuse(picket.CodeTooLarge, "Renew this lease with POST /v1/lease/renew, which has the commands.",
			"the lease is renewed, but its commands have more than %d bytes", maxRenewalAnswer).
			With("limit", maxRenewalAnswer)
	}
	return answer, nil
}
