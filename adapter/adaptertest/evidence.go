package adaptertest

import (
	"net/http"

	"github.com/picket-dev/picket"
)

func evidence(s *Server, l *lease, _ *http.Request, body []byte) (any, error) {
	if len(body) > picket.MaxPayload {
		return nil, picket.TooLarge("/diff", len(body))
	}
	in, err := decode[struct {
		Repository string               `json:"repository"`
		Branch     string               `json:"branch"`
		Base       string               `json:"base"`
		Diffstat   string               `json:"diffstat"`
		Diff       string               `json:"diff"`
		Truncated  bool                 `json:"truncated"`
		Files      []picket.ChangedFile `json:"files"`
	}](body)
	if err != nil {
		return nil, err
	}
	ev := picket.Evidence{RunID: l.record.RunID, Repository: in.Repository, Branch: in.Branch, Base: in.Base,
		Diffstat: in.Diffstat, Diff: in.Diff, Truncated: in.Truncated, Files: in.Files, At: picket.InstantOf(now())}
	if err := ev.Check(); err != nil {
		return nil, err
	}
	l.run.Changes = &ev
	s.notify()
	return struct{}{}, nil
}
