package orchestrator

import (
	"cmp"
	"context"

	"github.com/picket-dev/picket"
)

// RunBundlePiece stores one piece of the bundle of the branch of the run's task. The first piece
// begins an upload, in place of one that was not finished. kept reports that the task keeps
// this bundle already, so no further piece is needed. Only the newest run of a task may call it,
// until 15 minutes after its lease ended or somebody has decided about the task.
func (e *Engine) RunBundlePiece(ctx context.Context, held picket.LeaseCredential,
	p picket.BundlePiece) (kept bool, err error) {
	if err := p.Check(); err != nil {
		return false, err
	}
	q := e.quotas()
	r := e.runHeld(ctx, held, "bundle_piece", p.SHA256, p.Size, p.Number, p.Data, max(q.BundleBytes, 0), q.BundlesBytes)
	return r.Text(r.Value) == "kept", r.Err
}

// RunBundle makes the bundle whose pieces were all stored the one that the task keeps, in place
// of an earlier one. It refuses as [Engine.RunBundlePiece] does.
func (e *Engine) RunBundle(ctx context.Context, held picket.LeaseCredential, b picket.Bundle) error {
	if err := b.Check(); err != nil {
		return err
	}
	return e.runHeld(ctx, held, "bundle_commit", b.SHA256, b.Size, picket.BundlePieces(b.Size), b.Branch, b.Base,
		b.Tip).Err
}

// Bundle describes the bundle that a task keeps.
func (e *Engine) Bundle(ctx context.Context, taskID string) (picket.Bundle, error) {
	r := e.runChecked(ctx, picket.CheckID("taskId", "task", taskID), "bundle", taskID)
	var v struct {
		SHA    string `reply:"sha"`
		Size   int64  `reply:"size"`
		Count  int64  `reply:"count"` // of pieces
		Run    string `reply:"run"`
		Token  int64  `reply:"token"` // of that run
		Branch string `reply:"branch"`
		Base   string `reply:"base"`
		Tip    string `reply:"tip"`
		At     int64  `reply:"at"`
	}
	r.Decode(&v)
	return picket.Bundle{
		TaskID:       taskID,
		RunID:        v.Run,
		FencingToken: v.Token,
		Branch:       v.Branch,
		Base:         v.Base,
		Tip:          v.Tip,
		Size:         v.Size,
		Pieces:       int(v.Count),
		SHA256:       v.SHA,
		At:           picket.Instant(v.At),
	}, r.Err
}

// BundlePiece reads one piece of the bundle that a task keeps. It is not found if another
// bundle has taken the place of the one with this SHA-256.
func (e *Engine) BundlePiece(ctx context.Context, taskID, digest string, number int) ([]byte, error) {
	refused := cmp.Or(picket.CheckID("taskId", "task", taskID), picket.CheckBundleDigest("sha256", digest))
	r := e.runChecked(ctx, refused, "bundle_read", taskID, digest, number)
	return []byte(r.Text(r.Value)), r.Err
}
