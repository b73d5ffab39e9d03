package adaptertest

import (
	"net/http"

	"github.com/picket-dev/picket"
)

// SupportRenewals sets whether the server has the route POST /v1/leases/renew. It has it by default; servers of
// earlier versions do not.
func (s *Server) SupportRenewals(has bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noTogether = !has
}

// TakeOver makes the lease of a run one that another key has acquired. It can then be renewed by its own route only.
func (s *Server) TakeOver(runID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.foreign[runID] = true
}

// renewTogether renews several leases, each on its own.
func (s *Server) renewTogether(r *http.Request, body []byte) (int, any, error) {
	req, err := decode[picket.RenewRequest](body)
	if err != nil {
		return 0, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.noTogether:
		return 0, nil, picket.Refuse(picket.CodeNotFound, "See the protocol.", "there is no such route")
	case bearer(r) != Key:
		return 0, nil, picket.Refuse(picket.CodeUnauthenticated, "Send an API key.", "the key is not known")
	case len(req.Leases) < 1 || len(req.Leases) > picket.MaxRenewals:
		return 0, nil, picket.Invalid("/leases", "Send 1 to 64 leases.", "leases has %d items", len(req.Leases))
	}
	answers := make([]any, len(req.Leases))
	for i, l := range req.Leases {
		got, err := s.renewOne(r, l)
		if answers[i] = got; err != nil {
			answers[i] = problem(err)
		}
	}
	return http.StatusOK, map[string]any{"leases": answers}, nil
}

func (s *Server) renewOne(r *http.Request, item picket.LeaseToRenew) (any, error) {
	l := s.leases[item.LeaseToken]
	if l == nil || s.foreign[l.record.RunID] {
		return nil, picket.Refuse(picket.CodeUnauthenticated, "Send the lease token.", "there is no such lease token")
	}
	if f := s.nextFault("item " + l.record.RunID); f.kind == Unavailable {
		return nil, picket.Refuse(picket.CodeUnavailable, "Try again.", "the orchestrator is unavailable")
	}
	if err := s.fence(l); err != nil {
		return nil, err
	}
	if l.void {
		return nil, picket.Refuse(picket.CodeReclaimRequired, "Reclaim the lease, then repeat the request.",
			"the store was adopted")
	}
	l.confirmed = true
	return renew(s, l, r, []byte("{}"))
}
