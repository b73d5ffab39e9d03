package adaptertest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
)

// Bundle is the bundle of the branch of a task that the server keeps.
type Bundle struct {
	picket.Bundle
	Data []byte
}

// bundleUpload is a bundle of which not all pieces have come.
type bundleUpload struct {
	digest string
	run    string
	pieces map[int][]byte
}

const bundlePath = "/v1/run/bundle/"

// SetBundle keeps a bundle for a task, whatever is in it. Digest and size that about does not name
// are those of the data.
func (s *Server) SetBundle(taskID string, about picket.Bundle, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if about.SHA256 == "" {
		about.SHA256 = digestOf(data)
	}
	if about.Size == 0 {
		about.Size = int64(len(data))
	}
	about.TaskID, about.Pieces, about.At = taskID, picket.BundlePieces(about.Size), picket.InstantOf(now())
	s.tasks[taskID].view.Bundle = &Bundle{about, data}
	s.notify()
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// checkNewest refuses a run of which a later one of the same task was granted.
func (l *lease) checkNewest() error {
	if l.record.FencingToken < l.task.view.Token {
		return picket.Refuse(picket.CodeStaleFence, "Stop writing and exit.", "token %d was superseded",
			l.record.FencingToken)
	}
	return nil
}

func bundlePiece(s *Server, l *lease, r *http.Request, body []byte) (any, error) {
	if err := l.checkNewest(); err != nil {
		return nil, err
	}
	digest, number, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, bundlePath), "/")
	p := picket.BundlePiece{SHA256: digest, Data: body}
	p.Number, _ = strconv.Atoi(number)
	p.Size, _ = strconv.ParseInt(r.URL.Query().Get("size"), 10, 64)
	if err := p.Check(); err != nil {
		return nil, err
	}
	type stored struct {
		Kept bool `json:"kept"`
	}
	if b := l.task.view.Bundle; b != nil && b.SHA256 == digest {
		return stored{true}, nil
	}
	up := l.task.upload
	if up == nil || up.digest != digest || up.run != l.record.RunID {
		if p.Number > 0 {
			return nil, picket.Refuse(picket.CodeStateConflict, "Begin with piece 0.", "this upload has not begun")
		}
		up = &bundleUpload{digest, l.record.RunID, map[int][]byte{}}
		l.task.upload = up
	}
	up.pieces[p.Number] = bytes.Clone(body)
	s.notify()
	return stored{}, nil
}

func bundle(s *Server, l *lease, _ *http.Request, body []byte) (any, error) {
	if err := l.checkNewest(); err != nil {
		return nil, err
	}
	in, err := decode[struct {
		SHA256 string `json:"sha256"`
		Size   int64  `json:"size"`
		Branch string `json:"branch"`
		Base   string `json:"base"`
		Tip    string `json:"tip"`
	}](body)
	if err != nil {
		return nil, err
	}
	about := picket.Bundle{TaskID: l.task.id, RunID: l.record.RunID, FencingToken: l.record.FencingToken,
		Branch: in.Branch, Base: in.Base, Tip: in.Tip, Size: in.Size, Pieces: picket.BundlePieces(in.Size),
		SHA256: in.SHA256, At: picket.InstantOf(now())}
	if err := about.Check(); err != nil {
		return nil, err
	}
	if b := l.task.view.Bundle; b != nil && b.SHA256 == in.SHA256 {
		return struct{}{}, nil
	}
	up := l.task.upload
	if up == nil || up.digest != in.SHA256 || up.run != l.record.RunID || len(up.pieces) != about.Pieces {
		return nil, picket.Refuse(picket.CodeStateConflict, "Begin with piece 0.", "pieces are missing")
	}
	var data []byte
	for n := range about.Pieces {
		data = append(data, up.pieces[n]...)
	}
	l.task.view.Bundle, l.task.upload = &Bundle{about, data}, nil
	s.notify()
	return struct{}{}, nil
}

// readBundle answers the control plane's routes of bundles.
func (s *Server) readBundle(r *http.Request) (int, any, error) {
	if picket.Secret(r.Header.Get("X-Api-Key")) != Key && bearer(r) != Key {
		return 0, nil, picket.Refuse(picket.CodeUnauthenticated, "Send the key.", "the API key is not valid")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/api/v1/tasks/"), "/bundle")
	t := s.tasks[id]
	if t == nil || t.view.Bundle == nil {
		return 0, nil, picket.Refuse(picket.CodeNotFound, "Go on without it.", "there is no such bundle")
	}
	b := t.view.Bundle
	if rest == "" {
		return http.StatusOK, b.Bundle, nil
	}
	part := strings.Split(strings.TrimPrefix(rest, "/"), "/")
	n, err := strconv.Atoi(part[len(part)-1])
	if err != nil || part[0] != b.SHA256 || n*picket.BundlePieceSize >= len(b.Data) {
		return 0, nil, picket.Refuse(picket.CodeNotFound, "Read it again.", "there is no such bundle")
	}
	from := n * picket.BundlePieceSize
	return http.StatusOK, slices.Clone(b.Data[from:min(from+picket.BundlePieceSize, len(b.Data))]), nil
}
