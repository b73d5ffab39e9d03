package toolproxy

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/lazyregexp"
	"github.com/picket-dev/picket/internal/web"
)

// FenceHeader carries the fencing token that a writer believes is its own, as decimal
// digits. It is optional, because the lease token names the acquisition already. If it
// is sent, it must be the token of the lease.
const FenceHeader = "X-Fencing-Token"

var fencePattern = lazyregexp.New(`^[1-9][0-9]{0,15}$`)

// authenticate opens the lease token of a request. Only a missing or forged one is 401,
// because agents give up their tools permanently at a 401. A session capability is 401 when
// its prompt is over, too: the next prompt has another one.
func (p *Proxy) authenticate(r *http.Request) (picket.LeaseCredential, error) {
	token, err := bearerToken(r.Header)
	if err != nil {
		return picket.LeaseCredential{}, err
	}
	if strings.HasPrefix(token, picket.SessionCapabilityPrefix) {
		return p.openCapability(r.Context(), token)
	}
	held, err := p.sealer.OpenLeaseToken(token)
	if err != nil {
		return picket.LeaseCredential{}, Unauthenticated("the lease token is malformed or was not made here").
			WithCause(err)
	}
	held.Fence, err = fenceFromHeader(r.Header)
	return held, err
}

// checkSide refuses the credential of the other side of the lease. A credential
// that was made for both sides is valid everywhere. The refusal writes no event,
// because an agent could fill the log with them.
func checkSide(held picket.LeaseCredential, side picket.LeaseSide) error {
	switch {
	case held.Side == picket.SideBoth || held.Side == side:
		return nil
	case side == picket.SideAdapter:
		return picket.Refuse(picket.CodeForbidden,
			"Use the tools: report_progress to report, and mark_complete, mark_failed or request_human_help to end the run. The adapter does the rest.",
			"only the adapter of the run may call this route, and this is the agent's credential").
			With("needs", string(side))
	}
	return picket.Refuse(picket.CodeForbidden,
		"Send the agentToken of the lease record. The leaseToken is for the routes below /v1/lease and /v1/run.",
		"only the agent of the run may call this route, and this is the adapter's credential").
		With("needs", string(side))
}

// bearerToken finds the lease token in the Authorization header.
func bearerToken(h http.Header) (string, error) {
	values := h.Values("Authorization")
	if len(values) == 0 {
		return "", Unauthenticated("there is no lease token")
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	switch {
	case len(values) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "":
		return "", Unauthenticated("the Authorization header is not a single lease token")
	case strings.HasPrefix(token, picket.KeyPrefix):
		return "", Unauthenticated("an API key opens the control plane, not the tool proxy")
	}
	return token, nil
}

// Unauthenticated refuses a request without a valid lease token; message says what is
// wrong with it.
func Unauthenticated(message string) *picket.Error {
	return picket.Refuse(picket.CodeUnauthenticated,
		"Send Authorization: Bearer with the leaseToken of your lease (PICKET_LEASE_TOKEN in the agent's environment); it starts with "+picket.LeaseTokenPrefix+".",
		"%s", message)
}

// fenceFromHeader reads the fencing token of [FenceHeader]; 0 without the header.
func fenceFromHeader(h http.Header) (int64, error) {
	values := h.Values(FenceHeader)
	if len(values) == 0 {
		return 0, nil
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	if len(values) > 1 || !fencePattern().MatchString(values[0]) || err != nil || n > picket.MaxNumber {
		return 0, picket.Invalid(FenceHeader,
			"Send the fencingToken of your lease as plain digits, or leave the header out.",
			"%s is not one positive whole number below 2^53", FenceHeader)
	}
	return n, nil
}

// AdmitLLM admits a request of an agent to a vendor of language models: it checks the
// credential, counts the request against the rate of the lease, and finds the backend
// of its namespace. An error is a *picket.Error, and nothing has been answered then.
func (p *Proxy) AdmitLLM(c echo.Context) (Backend, picket.LeaseCredential, error) {
	held, err := p.authenticateLLM(c.Request())
	if err != nil {
		return nil, held, err
	}
	if err := web.MarkAuthenticated(c, web.KindLease, held.HolderID()); err != nil {
		return nil, held, err
	}
	if err := p.take(held, forAgent); err != nil {
		return nil, held, err
	}
	backend, err := p.BackendOf(held)
	return backend, held, err
}

// authenticateLLM finds the lease token, or the session capability, in either of the headers that clients of
// these APIs send. One of them may hold something else.
func (p *Proxy) authenticateLLM(r *http.Request) (picket.LeaseCredential, error) {
	tokens := append([]string(nil), r.Header.Values("X-Api-Key")...)
	for _, value := range r.Header.Values("Authorization") {
		if scheme, token, _ := strings.Cut(value, " "); strings.EqualFold(scheme, "Bearer") {
			tokens = append(tokens, strings.TrimSpace(token))
		}
	}
	found := ""
	for _, token := range tokens {
		known := strings.HasPrefix(token, picket.LeaseTokenPrefix) ||
			strings.HasPrefix(token, picket.SessionCapabilityPrefix)
		if !known || token == found {
			continue
		}
		if found != "" {
			return picket.LeaseCredential{}, Unauthenticated("there are two different credentials")
		}
		found = token
	}
	if found == "" {
		return picket.LeaseCredential{}, picket.Refuse(picket.CodeUnauthenticated,
			"Use the lease token (PICKET_LEASE_TOKEN in the agent's environment) as the API key; it starts with "+
				picket.LeaseTokenPrefix+".",
			"there is no lease token in x-api-key or Authorization: Bearer")
	}
	if strings.HasPrefix(found, picket.SessionCapabilityPrefix) {
		return p.openCapability(r.Context(), found)
	}
	held, err := p.sealer.OpenLeaseToken(found)
	if err != nil {
		return held, Unauthenticated("the lease token is malformed or was not made here").WithCause(err)
	}
	if err := checkSide(held, forAgent); err != nil {
		return held, err
	}
	held.Fence, err = fenceFromHeader(r.Header)
	return held, err
}
