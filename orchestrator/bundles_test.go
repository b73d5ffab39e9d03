package orchestrator_test

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// wantBundle wants that a task keeps exactly this bundle.
func wantBundle(t *testing.T, f *fixture, task string, want kit.Bundle) picket.Bundle {
	t.Helper()
	about, err := f.Bundle(f.Ctx, task)
	kit.OK(t, err)
	if about.SHA256 != want.Digest() || about.Size != int64(len(want.Data)) || about.Tip != want.About().Tip ||
		about.At == 0 {
		t.Fatalf("the task keeps %+v, want %d bytes %s", about, len(want.Data), want.Digest())
	}
	var data []byte
	for n := range about.Pieces {
		piece, err := f.BundlePiece(f.Ctx, task, about.SHA256, n)
		kit.OK(t, err)
		data = append(data, piece...)
	}
	if !bytes.Equal(data, want.Data) {
		t.Fatalf("%d bytes came back, not the %d that were stored", len(data), len(want.Data))
	}
	return about
}

// wantCounted wants that a task, its tree and a key have this many bytes of bundles.
func wantCounted(t *testing.T, f *fixture, owner string, want int) {
	t.Helper()
	n, err := f.Raw.Get(f.Ctx, "pk:{default}:bundle-bytes:"+owner).Int()
	if want == 0 && err != nil {
		return
	}
	kit.OK(t, err)
	if n != want {
		t.Errorf("%s has %d bytes of bundles, want %d", owner, n, want)
	}
}

// A bundle is read only when it was named whole, and the next takes its place whole.
func TestABundleIsWholeOrNotThere(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		one, two := kit.BundleOf(2*picket.BundlePieceSize, '1'), kit.BundleOf(2*picket.BundlePieceSize+77, '2')
		f.MustSendPieces(t, h, one, 2)
		_, err := f.Bundle(f.Ctx, task.TaskID)
		kit.Refused(t, err, picket.CodeNotFound)
		_, err = f.BundlePiece(f.Ctx, task.TaskID, one.Digest(), 0)
		kit.Refused(t, err, picket.CodeNotFound)
		kit.OK(t, f.RunBundle(f.Ctx, h, one.About()))
		wantBundle(t, f, task.TaskID, one)
		f.MustSendPieces(t, h, two, 2)
		kit.Refused(t, f.RunBundle(f.Ctx, h, two.About()), picket.CodeStateConflict) // a piece is missing
		wantBundle(t, f, task.TaskID, one)
		wantCounted(t, f, task.TaskID, len(one.Data)+len(two.Data))
		if _, err := f.RunBundlePiece(f.Ctx, h, two.Piece(2)); err != nil {
			t.Fatal(err)
		}
		other := two.About()
		other.Size++
		kit.Refused(t, f.RunBundle(f.Ctx, h, other), picket.CodeStateConflict)
		kit.OK(t, f.RunBundle(f.Ctx, h, two.About()))
		if got := wantBundle(t, f, task.TaskID, two); got.RunID != h.RunID || got.FencingToken != 1 {
			t.Errorf("handed in by %s with token %d", got.RunID, got.FencingToken)
		}
		wantCounted(t, f, task.TaskID, len(two.Data))
		if kept, err := f.RunBundlePiece(f.Ctx, h, two.Piece(0)); err != nil || !kept {
			t.Errorf("the same bundle again: kept %t, %v", kept, err)
		}
		if n := countKeys(t, f, "pieces:"); n != 1 {
			t.Errorf("%d bundles are stored", n)
		}
		_, err = f.BundlePiece(f.Ctx, task.TaskID, one.Digest(), 0) // a reader of the one before
		kit.Refused(t, err, picket.CodeNotFound)
	})
}

// A superseded run never replaces the bundle of its task, however far its upload was.
func TestASupersededRunStoresNoBundle(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, old := f.SubmitAndLease(t, picket.TaskSpec{})
		mine, late := kit.BundleOf(300, 'm'), kit.BundleOf(301, 'l')
		f.MustSendPieces(t, old, late, 1) // all but the last step
		_, err := f.Expire(f.Ctx, kit.Operator, task.TaskID, "r")
		kit.OK(t, err)
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a2"}))
		kit.Refused(t, f.RunBundle(f.Ctx, old, late.About()), picket.CodeStaleFence)
		_, err = f.RunBundlePiece(f.Ctx, old, late.Piece(0))
		kit.Refused(t, err, picket.CodeStaleFence)
		// What another run has sent is not taken over either. The same bundle begins again.
		kit.Refused(t, f.RunBundle(f.Ctx, h, late.About()), picket.CodeStateConflict)
		f.MustKeepBundle(t, h, late)
		f.MustKeepBundle(t, h, mine)
		kit.Refused(t, f.RunBundle(f.Ctx, old, late.About()), picket.CodeStaleFence)
		kit.Refused(t, f.RunBundle(f.Ctx, old, mine.About()), picket.CodeStaleFence)
		if got := wantBundle(t, f, task.TaskID, mine); got.RunID != h.RunID {
			t.Errorf("it is that of %s", got.RunID)
		}
	})
}

// The bundle of a run may come after its end. It is taken until evidence is over, unless
// somebody has decided, the lease has run out, or the task is that of the next run.
func TestABundleComesAfterTheEndOfItsRun(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{Review: picket.ReviewByNone})
		_, err := f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
		kit.OK(t, err)
		f.JumpStoreTime(t, 14*time.Minute)
		f.MustKeepBundle(t, h, kit.BundleOf(10, 'a'))
		f.JumpStoreTime(t, 2*time.Minute)
		kit.Refused(t, f.RunBundle(f.Ctx, h, kit.BundleOf(10, 'a').About()), picket.CodeLeaseExpired)
		wantBundle(t, f, task.TaskID, kit.BundleOf(10, 'a'))

		_, h = f.SubmitAndLease(t, picket.TaskSpec{})
		f.JumpStoreTime(t, time.Hour) // nobody has renewed, and the reaper has not come
		_, err = f.RunBundlePiece(f.Ctx, h, kit.BundleOf(10, 'a').Piece(0))
		kit.Refused(t, err, picket.CodeLeaseExpired)

		task, h = f.SubmitAndLease(t, picket.TaskSpec{})
		_, err = f.Complete(f.Ctx, h, picket.Completion{})
		kit.OK(t, err)
		f.MustKeepBundle(t, h, kit.BundleOf(10, 'r'))
		f.MustSendPieces(t, h, kit.BundleOf(10, 's'), 1)
		_, _, err = f.Reject(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Note: "no"}, nil)
		kit.OK(t, err)
		kit.Refused(t, f.RunBundle(f.Ctx, h, kit.BundleOf(10, 's').About()), picket.CodeTaskClosed)
		wantBundle(t, f, task.TaskID, kit.BundleOf(10, 'r'))
	})
}

// A bundle goes with its task, an upload that was left goes after an hour, and neither is
// counted any more.
func TestBundlesAreDeleted(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		keep := picket.Retention{Tasks: 30 * 24 * time.Hour, Events: 100 * 24 * time.Hour, MaxEvents: 1e6}
		f.MustSubmit(t, picket.TaskSpec{Review: picket.ReviewByNone})
		key := f.MustCreateKey(t, picket.ScopeAgent)
		h := f.OpenLease(t, f.AcquireWithKey(t, key))
		f.MustKeepBundle(t, h, kit.BundleOf(1000, 'a'))
		f.MustSendPieces(t, h, kit.BundleOf(picket.BundlePieceSize+1, 'b'), 1)
		wantCounted(t, f, key, 1000+picket.BundlePieceSize+1)
		_, err := f.Complete(f.Ctx, h, picket.Completion{})
		kit.OK(t, err)
		f.JumpStoreTime(t, 59*time.Minute)
		_, err = f.ApplyRetention(f.Ctx, keep, 100)
		kit.OK(t, err)
		if n := countKeys(t, f, "pieces:"); n != 2 {
			t.Errorf("%d of 2 bundles are stored before the hour is over", n)
		}
		f.JumpStoreTime(t, 2*time.Minute)
		_, err = f.ApplyRetention(f.Ctx, keep, 100)
		kit.OK(t, err)
		wantBundle(t, f, h.TaskID, kit.BundleOf(1000, 'a'))
		wantCounted(t, f, key, 1000)
		wantCounted(t, f, h.TaskID, 1000)
		kit.CheckInvariants(t, f.Engine)
		f.JumpStoreTime(t, 31*24*time.Hour)
		_, err = f.ApplyRetention(f.Ctx, keep, 100)
		kit.OK(t, err)
		wantCounted(t, f, key, 0)
		for _, kind := range []string{"pieces:", "bundle:", "bundle-bytes:", "uploads"} {
			if n := countKeys(t, f, kind); n != 0 {
				t.Errorf("%d keys %s are left of a deleted task", n, kind)
			}
		}
	})
}

// Two uploads at once: at the end one of them is kept, whole.
func TestTwoUploadsAtOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		size := 3*picket.BundlePieceSize + 1
		both := []kit.Bundle{kit.BundleOf(size, '1'), kit.BundleOf(size, '2')}
		var uploads sync.WaitGroup
		stored := make([]bool, 2)
		for i, b := range both {
			uploads.Go(func() {
				for n := range 4 {
					if _, err := f.RunBundlePiece(f.Ctx, h, b.Piece(n)); err != nil {
						kit.Refused(t, err, picket.CodeStateConflict)
						return
					}
				}
				stored[i] = f.RunBundle(f.Ctx, h, b.About()) == nil
			})
		}
		uploads.Wait()
		about, err := f.Bundle(f.Ctx, task.TaskID)
		if err != nil { // each has replaced the upload of the other
			kit.Refused(t, err, picket.CodeNotFound)
			f.MustKeepBundle(t, h, both[0])
			return
		}
		for i, b := range both {
			if about.SHA256 == b.Digest() {
				if !stored[i] {
					t.Error("a bundle is kept that was refused")
				}
				wantBundle(t, f, task.TaskID, b)
			}
		}
		wantCounted(t, f, task.TaskID, size)
	})
}

// What cannot be a piece of a bundle is refused before the store sees it.
func TestBadPiecesOfBundles(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.SubmitAndLease(t, picket.TaskSpec{})
		good := kit.BundleOf(picket.BundlePieceSize+5, 'a')
		for name, change := range map[string]func(*picket.BundlePiece){
			"digest": func(p *picket.BundlePiece) { p.SHA256 = "../../etc/passwd" },
			"upper":  func(p *picket.BundlePiece) { p.SHA256 = "A" + p.SHA256[1:] },
			"huge":   func(p *picket.BundlePiece) { p.Size = 1 << 50 },
			"empty":  func(p *picket.BundlePiece) { p.Size = 0 },
			"number": func(p *picket.BundlePiece) { p.Number = 2 },
			"below":  func(p *picket.BundlePiece) { p.Number = -1 },
			"short":  func(p *picket.BundlePiece) { p.Data = p.Data[1:] },
			"long":   func(p *picket.BundlePiece) { p.Number = 1 },
		} {
			p := good.Piece(0)
			change(&p)
			if _, err := f.RunBundlePiece(f.Ctx, h, p); picket.CodeOf(err) != picket.CodeValidation {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, change := range map[string]func(*picket.Bundle){
			"branch":         func(b *picket.Bundle) { b.Branch = "" },
			"another branch": func(b *picket.Bundle) { b.Branch = "main" },
			"a path":         func(b *picket.Bundle) { b.Branch = "picket/../../etc" },
			"an option":      func(b *picket.Bundle) { b.Branch = "--upload-pack=x" },
			"base":           func(b *picket.Bundle) { b.Base = "main" },
			"tip":            func(b *picket.Bundle) { b.Tip = "--upload-pack=x" },
		} {
			b := good.About()
			change(&b)
			if err := f.RunBundle(f.Ctx, h, b); picket.CodeOf(err) != picket.CodeValidation {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := countKeys(t, f, "pieces:"); n != 0 {
			t.Errorf("%d bundles are stored", n)
		}
	})
}

// A run whose key was revoked hands in nothing more.
func TestARevokedKeyStoresNoBundle(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		key := f.MustCreateKey(t, picket.ScopeAgent)
		h := f.OpenLease(t, f.AcquireWithKey(t, key))
		f.MustSendPieces(t, h, kit.BundleOf(5, 'k'), 1)
		_, err := f.Complete(f.Ctx, h, picket.Completion{})
		kit.OK(t, err)
		f.MustRevokeKey(t, key, nil)
		kit.Refused(t, f.RunBundle(f.Ctx, h, kit.BundleOf(5, 'k').About()), picket.CodeLeaseExpired)
		_, err = f.Bundle(f.Ctx, h.TaskID)
		kit.Refused(t, err, picket.CodeNotFound)
	})
}

// One bundle, those of a key and those of a tree are bounded, each on its own. A server can be
// set to keep none.
func TestQuotasOfBundles(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.Store.SetQuotas(orchestrator.Quotas{BundleBytes: 300, BundlesBytes: 500})
		defer f.Store.SetQuotas(orchestrator.Quotas{})
		refused := func(h picket.LeaseCredential, b kit.Bundle, quota string) {
			t.Helper()
			_, err := f.RunBundlePiece(f.Ctx, h, b.Piece(0))
			kit.Refused(t, err, picket.CodeQuota)
			if facts := err.(*picket.Error).Facts; facts["quota"] != quota {
				t.Errorf("refused by the quota %v, want %s", facts["quota"], quota)
			}
		}
		_, h := f.SubmitAndLease(t, picket.TaskSpec{})
		refused(h, kit.BundleOf(301, 'a'), "bundle_bytes")
		f.MustKeepBundle(t, h, kit.BundleOf(300, 'a'))
		refused(h, kit.BundleOf(201, 'b'), "bundles_bytes") // while the first is still kept
		f.MustKeepBundle(t, h, kit.BundleOf(200, 'b'))
		_, err := f.Cancel(f.Ctx, kit.Operator, h.TaskID, "")
		kit.OK(t, err)

		key := f.MustCreateKey(t, picket.ScopeAgent)
		for i, size := range []int{300, 200} { // two trees, one key
			f.MustSubmit(t, picket.TaskSpec{})
			h = f.OpenLease(t, f.AcquireWithKey(t, key))
			f.MustKeepBundle(t, h, kit.BundleOf(size, 'c'+byte(i)))
		}
		f.MustSubmit(t, picket.TaskSpec{})
		h = f.OpenLease(t, f.AcquireWithKey(t, key))
		refused(h, kit.BundleOf(1, 'e'), "bundles_bytes")

		f.Store.SetQuotas(orchestrator.Quotas{BundleBytes: -1})
		refused(h, kit.BundleOf(1, 'e'), "bundle_bytes")
	})
}

// The bundles of run keys count for the key that made them. A run whose run key was deleted
// begins no upload, because nobody knows for which key it would count.
func TestBundlesOfRunKeysCountForTheirParent(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.Store.SetQuotas(orchestrator.Quotas{BundleBytes: 300, BundlesBytes: 500})
		defer f.Store.SetQuotas(orchestrator.Quotas{})
		parent := f.MustCreateKey(t, picket.ScopeAgent)
		begin := func() (picket.LeaseCredential, string) {
			f.MustSubmit(t, picket.TaskSpec{})
			key := f.MustCreateRunKey(t, parent).KeyID
			return f.OpenLease(t, f.AcquireWithKey(t, key)), key
		}
		for i, size := range []int{300, 200} {
			h, key := begin()
			f.MustKeepBundle(t, h, kit.BundleOf(size, 'a'+byte(i)))
			wantCounted(t, f, key, 0)
		}
		wantCounted(t, f, parent, 500)
		h, key := begin()
		_, err := f.RunBundlePiece(f.Ctx, h, kit.BundleOf(1, 'c').Piece(0))
		kit.Refused(t, err, picket.CodeQuota)

		_, err = f.Complete(f.Ctx, h, picket.Completion{})
		kit.OK(t, err)
		kit.OK(t, f.EndRunKey(f.Ctx, key))
		_, err = f.RunBundlePiece(f.Ctx, h, kit.BundleOf(1, 'c').Piece(0))
		kit.Refused(t, err, picket.CodeLeaseExpired)
	})
}

// A repeat changes nothing; the same bytes from the next run are that run's bundle.
func TestTheSameBundleAgain(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		b := kit.BundleOf(10, 'a')
		f.MustKeepBundle(t, h, b)
		was := wantBundle(t, f, task.TaskID, b)
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:bundle:"+task.TaskID, "at", 5).Err())
		kit.OK(t, f.RunBundle(f.Ctx, h, b.About()))
		if again := wantBundle(t, f, task.TaskID, b); again.At != 5 || again.RunID != was.RunID {
			t.Errorf("the repeat made it %+v", again)
		}
		_, err := f.Release(f.Ctx, h, picket.Exit{Class: picket.ExitReleased})
		kit.OK(t, err)
		h = f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		kit.OK(t, f.RunBundle(f.Ctx, h, b.About()))
		if next := wantBundle(t, f, task.TaskID, b); next.RunID != h.RunID || next.FencingToken != 2 {
			t.Errorf("the bundle of the next run is %+v", next)
		}
		// Its size and its number of pieces stay those of the bytes that are kept.
		for _, size := range []int64{1, 11, picket.BundlePieceSize + 1} {
			other := b.About()
			other.Size, other.Tip = size, other.Base
			kit.Refused(t, f.RunBundle(f.Ctx, h, other), picket.CodeStateConflict)
		}
		wantBundle(t, f, task.TaskID, b)
		kit.CheckInvariants(t, f.Engine)
	})
}
