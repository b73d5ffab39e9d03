package branches

import (
	"slices"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverBundles hands bundles in, whole and in part, under every kind of lease.
func coverBundles(t *testing.T, f *fixture) {
	task, h := f.SubmitAndLease(t, picket.TaskSpec{})
	small, large := kit.BundleOf(5, 'a'), kit.BundleOf(picket.BundlePieceSize+5, 'b')
	_, err := f.Bundle(f.Ctx, kit.NoTask)
	kit.Refused(t, err, picket.CodeNotFound)
	_, err = f.BundlePiece(f.Ctx, kit.NoTask, small.Digest(), 0)
	kit.Refused(t, err, picket.CodeNotFound)
	_, err = f.Bundle(f.Ctx, task.TaskID)
	kit.Refused(t, err, picket.CodeNotFound)
	_, err = f.BundlePiece(f.Ctx, task.TaskID, small.Digest(), 0)
	kit.Refused(t, err, picket.CodeNotFound)
	other := h
	other.RunID = kit.NoRun
	kit.Refused(t, f.RunBundle(f.Ctx, other, small.About()), picket.CodeLeaseExpired)
	_, err = f.RunBundlePiece(f.Ctx, other, small.Piece(0))
	kit.Refused(t, err, picket.CodeLeaseExpired)
	_, err = f.RunBundlePiece(f.Ctx, h, large.Piece(1))
	kit.Refused(t, err, picket.CodeStateConflict)
	kit.Refused(t, f.RunBundle(f.Ctx, h, small.About()), picket.CodeStateConflict)
	f.MustSendPieces(t, h, large, 1)
	kit.Refused(t, f.RunBundle(f.Ctx, h, large.About()), picket.CodeStateConflict)
	f.MustKeepBundle(t, h, small)
	f.CallTwice(t, func() error { return f.RunBundle(f.Ctx, h, small.About()) })
	_, err = f.RunBundlePiece(f.Ctx, h, small.Piece(0))
	kit.OK(t, err)
	f.MustKeepBundle(t, h, large)
	for n := range 2 {
		_, err = f.BundlePiece(f.Ctx, task.TaskID, large.Digest(), n)
		kit.OK(t, err)
	}
	_, err = f.BundlePiece(f.Ctx, task.TaskID, large.Digest(), 2)
	kit.Refused(t, err, picket.CodeNotFound)
	_, err = f.Bundle(f.Ctx, task.TaskID)
	kit.OK(t, err)

	// An upload that nobody goes on with is given up.
	f.MustSendPieces(t, h, kit.BundleOf(9, 'c'), 1)
	f.JumpStoreTime(t, time.Hour+time.Minute)
	_, err = f.ApplyRetention(f.Ctx, picket.Retention{Tasks: 30 * 24 * time.Hour, Events: 100 * 24 * time.Hour,
		MaxEvents: 1e6}, 100)
	kit.OK(t, err)
	_, err = f.RunBundlePiece(f.Ctx, h, small.Piece(0)) // its lease has run out meanwhile
	kit.Refused(t, err, picket.CodeLeaseExpired)
	_, err = f.ExpireDue(f.Ctx, 100)
	kit.OK(t, err)
	again := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
	_, err = f.RunBundlePiece(f.Ctx, h, small.Piece(0))
	kit.Refused(t, err, picket.CodeStaleFence)
	kit.OK(t, f.RunBundle(f.Ctx, again, large.About())) // the bundle of the run before
	shorter := large.About()
	shorter.Size, shorter.Tip = 1, shorter.Base
	kit.Refused(t, f.RunBundle(f.Ctx, again, shorter), picket.CodeStateConflict)
	_, err = f.Release(f.Ctx, again, picket.Exit{Class: picket.ExitReleased})
	kit.OK(t, err)
	// An earlier version has listed the last run, too.
	runs := "pk:{default}:runs:" + task.TaskID
	kit.OK(t, f.Raw.RPush(f.Ctx, runs, again.RunID).Err())
	listed, err := f.Raw.LRange(f.Ctx, runs, 0, -1).Result()
	kit.OK(t, err)
	last := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
	if now := f.Raw.LRange(f.Ctx, runs, 0, -1).Val(); !slices.Equal(now, listed) {
		t.Errorf("before the next run %v were listed, then %v", listed, now)
	}
	_, err = f.RunBundlePiece(f.Ctx, again, small.Piece(0))
	kit.Refused(t, err, picket.CodeStaleFence)
	f.MustKeepBundle(t, last, small)
	_, err = f.Cancel(f.Ctx, kit.Operator, task.TaskID, "enough")
	kit.OK(t, err)
	_, err = f.RunBundlePiece(f.Ctx, again, small.Piece(0))
	kit.Refused(t, err, picket.CodeStaleFence)
	done, h := f.SubmitAndLease(t, picket.TaskSpec{})
	_, err = f.Complete(f.Ctx, h, picket.Completion{})
	kit.OK(t, err)
	f.MustSendPieces(t, h, small, 1)
	_, _, err = f.Reject(f.Ctx, kit.Operator, done.TaskID, picket.Decision{Note: "no"}, nil)
	kit.OK(t, err)
	kit.Refused(t, f.RunBundle(f.Ctx, h, small.About()), picket.CodeTaskClosed)
	f.revokedBundle(t)
	f.runKeyBundles(t)
	f.JumpStoreTime(t, 31*24*time.Hour)
	_, err = f.ApplyRetention(f.Ctx, picket.Retention{Tasks: 30 * 24 * time.Hour, Events: 100 * 24 * time.Hour,
		MaxEvents: 1e6}, 100)
	kit.OK(t, err)
}

// runKeyBundles are bundles of a run with a run key, before and after its deletion.
func (f *fixture) runKeyBundles(t *testing.T) {
	f.MustSubmit(t, picket.TaskSpec{})
	key := f.MustCreateRunKey(t, f.MustCreateKey(t, picket.ScopeAgent)).KeyID
	h := f.OpenLease(t, f.AcquireWithKey(t, key))
	f.MustKeepBundle(t, h, kit.BundleOf(5, 'k'))
	_, err := f.Complete(f.Ctx, h, picket.Completion{})
	kit.OK(t, err)
	kit.OK(t, f.EndRunKey(f.Ctx, key))
	_, err = f.RunBundlePiece(f.Ctx, h, kit.BundleOf(5, 'l').Piece(0))
	kit.Refused(t, err, picket.CodeLeaseExpired)
}

// revokedBundle is a bundle of a run whose key was revoked.
func (f *fixture) revokedBundle(t *testing.T) {
	f.MustSubmit(t, picket.TaskSpec{})
	key := f.MustCreateKey(t, picket.ScopeAgent)
	h := f.OpenLease(t, f.AcquireWithKey(t, key))
	f.MustKeepBundle(t, h, kit.BundleOf(5, 'k'))
	_, err := f.Complete(f.Ctx, h, picket.Completion{})
	kit.OK(t, err)
	f.MustRevokeKey(t, key, nil)
	kit.Refused(t, f.RunBundle(f.Ctx, h, kit.BundleOf(5, 'k').About()), picket.CodeLeaseExpired)
}
