package model

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The model's bundles: the branch of a task that the server keeps, and an upload of the next one.

// modelBundles is what the server has of the branch of a task.
type modelBundles struct {
	kept      *kit.Bundle
	keptBy    string // the run that handed it in
	keptToken int64  // its token by then
	keptTip   string
	upload    *modelUpload
}

type modelUpload struct {
	of     *kit.Bundle
	by     string
	pieces map[int]bool
}

// modelBundleContents are the bundles of the machine: two of one piece, and one of two.
var modelBundleContents = []*kit.Bundle{bundleOf(10, 'a'), bundleOf(10, 'b'), bundleOf(picket.BundlePieceSize+1, 'c')}

func bundleOf(size int, first byte) *kit.Bundle {
	b := kit.BundleOf(size, first)
	return &b
}

// keepsBundle reports which run may store the bundle of its task: only the newest one.
func (m *model) keepsBundle(h modelCredential) (*modelTask, *modelRun, picket.Code) {
	r, code := m.lateHolder(h)
	if code != "" {
		return nil, nil, code
	}
	t := m.tasks[r.task]
	if r.token != t.token {
		return nil, nil, picket.CodeStaleFence
	}
	if r.state == picket.RunRunning {
		if _, _, code := m.admits(h); code != "" {
			return nil, nil, code
		}
	} else if r.keyEnded {
		return nil, nil, picket.CodeLeaseExpired
	}
	if t.decided {
		return nil, nil, picket.CodeTaskClosed
	}
	return t, r, ""
}

// bundlePiece stores a piece. kept reports that the task keeps this bundle already.
func (m *model) bundlePiece(h modelCredential, b *kit.Bundle, number int) (kept bool, code picket.Code) {
	t, r, code := m.keepsBundle(h)
	if code != "" || t.kept == b {
		return code == "", code
	}
	if t.upload == nil || t.upload.of != b || t.upload.by != r.id {
		if number != 0 {
			return false, picket.CodeStateConflict
		}
		t.upload = &modelUpload{of: b, by: r.id, pieces: map[int]bool{}}
	}
	t.upload.pieces[number] = true
	return false, ""
}

// bundle makes a bundle that was stored whole the one that the task keeps.
func (m *model) bundle(h modelCredential, b *kit.Bundle, tip string) picket.Code {
	t, r, code := m.keepsBundle(h)
	switch {
	case code != "", t.kept == b && t.keptBy == r.id && t.keptTip == tip:
		return code
	case t.kept == b: // another run hands in the same
	case t.upload == nil, t.upload.of != b, t.upload.by != r.id,
		len(t.upload.pieces) != picket.BundlePieces(int64(len(b.Data))):
		return picket.CodeStateConflict
	default:
		t.upload = nil
	}
	t.kept, t.keptBy, t.keptToken, t.keptTip = b, r.id, r.token, tip
	return ""
}

// bundleBytes is what the bundles of a tree take.
func (m *model) bundleBytes(root string) (n int) {
	for _, t := range m.tasks {
		if t.id != root && t.root != root {
			continue
		}
		if t.kept != nil {
			n += len(t.kept.Data)
		}
		if t.upload != nil {
			n += len(t.upload.of.Data)
		}
	}
	return n
}

// bundles hands up to three bundles of a run in: the next takes the place of the one before.
func (x *machine) bundles() {
	h, mh := x.holderOf(func(r *modelRun) bool { return x.m.tasks[r.task].run == r.id })
	for range 1 + x.below(3, "bundles") {
		x.bundleBy(h, mh)
	}
}

// bundleBy hands a bundle in, sometimes not whole.
func (x *machine) bundleBy(h picket.LeaseCredential, mh modelCredential) {
	b := oneOf(x, "bundle", modelBundleContents...)
	about := b.About()
	about.Tip = oneOf(x, "tip", strings.Repeat("1", 40), strings.Repeat("2", 40))
	for number := range picket.BundlePieces(about.Size) {
		if x.chance("lost piece", 15) {
			continue
		}
		kept, err := x.e.RunBundlePiece(x.ctx, h, b.Piece(number))
		want, code := x.m.bundlePiece(mh, b, number)
		if x.agree(err, code, "piece %d of a bundle by %+v", number, mh) {
			x.same("piece of a bundle: kept", kept, want)
		}
	}
	if x.chance("name it", 80) {
		x.agree(x.e.RunBundle(x.ctx, h, about), x.m.bundle(mh, b, about.Tip), "bundle of %+v", mh)
	}
	if t := x.m.tasks[h.TaskID]; t != nil {
		x.compareBundle(t)
	}
}

// compareBundle reads what the server keeps of a task's branch.
func (x *machine) compareBundle(t *modelTask) {
	x.Helper()
	root := t.id
	if t.root != "" {
		root = t.root
	}
	counted, err := x.raw.Get(x.ctx, x.prefix+"bundle-bytes:"+root).Result()
	if x.m.bundleBytes(root) == 0 {
		counted, err = "0", nil
	}
	x.ok(err)
	x.same("bytes of bundles of "+root, counted, fmt.Sprint(x.m.bundleBytes(root)))
	got, err := x.e.Bundle(x.ctx, t.id)
	if t.kept == nil {
		x.agree(err, picket.CodeNotFound, "bundle of %s", t.id)
		return
	}
	x.ok(err)
	x.same("bundle: digest", got.SHA256, t.kept.Digest())
	x.same("bundle: run", got.RunID, t.keptBy)
	x.same("bundle: token", got.FencingToken, t.keptToken)
	x.same("bundle: tip", got.Tip, t.keptTip)
	for number := range got.Pieces {
		piece, err := x.e.BundlePiece(x.ctx, t.id, got.SHA256, number)
		x.ok(err)
		x.same("bundle: a piece is whole", bytes.Equal(piece, t.kept.Piece(number).Data), true)
	}
}
