package adaptertest

import (
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// SupportAdvance says whether the server has the route POST /api/v1/leases/advance;
// without it, it is one of an earlier version. It has it at first.
func (s *Server) SupportAdvance(has bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noAdvance = !has
}

// SupportSeparateCredentials says whether the server knows separateCredentials; one of an earlier
// version refuses the member. It knows it at first.
func (s *Server) SupportSeparateCredentials(knows bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noSeparate = !knows
}

// checkKnownMembers refuses a member of a later version.
func (s *Server) checkKnownMembers(req picket.AcquireRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.SeparateCredentials && s.noSeparate {
		return picket.Invalid("/separateCredentials", "Leave it out.", "separateCredentials is not a known field")
	}
	return nil
}

// advance completes a lease and grants the next ones. The same again tells the
// same, and so does mark_complete with the same output.
func (s *Server) advance(r *http.Request, body []byte) (int, any, error) {
	req, err := decode[picket.AdvanceRequest](body)
	if err != nil {
		return 0, nil, err
	}
	if bearer(r) != Key {
		return 0, nil, picket.Refuse(picket.CodeUnauthenticated, "Send an API key.", "the key is not known")
	}
	if err := req.Normalize(); err != nil {
		return 0, nil, err
	}
	s.mu.Lock()
	l := s.leases[req.LeaseToken]
	state, err := s.completed(l, req)
	s.mu.Unlock()
	if err != nil {
		return 0, nil, err
	}
	leases, _ := s.granted(r, req.Acquire) // who may take nothing has completed all the same
	return http.StatusOK, picket.Advanced{State: state, Leases: leases}, nil
}

func (s *Server) completed(l *lease, req picket.AdvanceRequest) (picket.TaskState, error) {
	switch {
	case s.noAdvance:
		return "", picket.Refuse(picket.CodeNotFound, "See the protocol.", "there is no such route")
	case l == nil:
		return "", picket.Invalid("/leaseToken", "Send the leaseToken of a lease.", "there is no such lease token")
	}
	same, err := json.Marshal(struct {
		Output  picket.RawJSON `json:"output"`
		Summary string         `json:"summary"`
	}{req.Output, req.Summary})
	if err != nil {
		return "", err
	}
	if verb := "/v1/tools/mark_complete" + string(same); l.verb != verb {
		if err := s.fence(l); err != nil {
			return "", err
		}
		l.verb = verb
		l.task.view.Output, l.task.view.Summary = req.Output, req.Summary
		s.end(l, picket.WatchCompleted, picket.CodeLeaseReleased, picket.TaskReview)
	}
	return l.answer, nil
}
