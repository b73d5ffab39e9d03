package orchestrator_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

func coverEvidence(t *testing.T, f *fixture) {
	task, h := f.submitAndLease(t, picket.TaskSpec{})
	change := func(act func(*picket.LeaseCredential)) picket.LeaseCredential {
		other := h
		act(&other)
		return other
	}
	empty, err := f.Log(f.ctx, f.mustSubmit(t, picket.TaskSpec{}).TaskID, "", "stdout", 0, 10) // it never ran
	ok(t, err)
	if len(empty.Data) > 0 {
		t.Fatalf("a log of nothing: %+v", empty)
	}
	for _, c := range []struct {
		h    picket.LeaseCredential
		code picket.Code
	}{
		{change(func(h *picket.LeaseCredential) { h.RunID = noRun }), picket.CodeLeaseExpired},
		{change(func(h *picket.LeaseCredential) { h.TaskID = noTask }), picket.CodeTaskMismatch},
		{change(func(h *picket.LeaseCredential) { h.Fence = 99 }), picket.CodeUnknownFence},
	} {
		_, err := f.RunLog(f.ctx, c.h, picket.LogWrite{Stream: "stdout", Offset: 0, Data: []byte("x")})
		refused(t, err, c.code)
		refused(t, f.RunExit(f.ctx, c.h, picket.Exit{Class: picket.ExitKilled}, ""), c.code)
		refused(t, f.RunEvidence(f.ctx, c.h, picket.Evidence{Branch: "b"}), c.code)
		refused(t, f.RunEvents(f.ctx, c.h, []picket.RunEvent{{Type: picket.EventAgentHeartbeat}}), c.code)
		_, _, err = f.Watch(f.ctx, c.h, time.Millisecond)
		if c.h.Fence == 0 {
			refused(t, err, c.code)
		}
	}
	h.Fence = f.wantState(t, task.TaskID, picket.TaskLeased).FencingToken
	_, _, err = f.Watch(f.ctx, h, time.Millisecond)
	ok(t, err)
	ok(t, f.RunEvents(f.ctx, h, []picket.RunEvent{{Type: picket.EventAgentHeartbeat}, {Type: picket.EventRunLaunched}}))
	f.callTwice(t, func() error {
		return f.RunEvents(f.ctx, h,
			[]picket.RunEvent{{Type: picket.EventAgentTimedOut, ID: "e1"},
				{Type: picket.EventRunStalled, ID: "e2", IdleSeconds: ptr(60.0)}})
	})
	at := int64(0)
	chunk := bytes.Repeat([]byte("x"), 48<<10)
	for range 24 { // more than a mebibyte, in pieces of no round size
		at, err = f.RunLog(f.ctx, h, picket.LogWrite{Stream: "stdout", Offset: at, Data: chunk})
		ok(t, err)
	}
	_, err = f.RunLog(f.ctx, h, picket.LogWrite{Stream: "stdout", Offset: 0, Data: chunk}) // known
	ok(t, err)
	_, err = f.RunLog(f.ctx, h, picket.LogWrite{Stream: "stdout", Offset: at + 1, Data: chunk})
	refused(t, err, picket.CodeOffset)
	_, err = f.RunLog(f.ctx, h, picket.LogWrite{Stream: "stdout", Offset: at, End: true})
	ok(t, err)
	_, err = f.RunLog(f.ctx, h, picket.LogWrite{Stream: "stdout", Offset: at, Data: chunk})
	refused(t, err, picket.CodeStateConflict)
	ok(t, f.raw.LPop(f.ctx, "pk:{default}:marks:"+h.RunID+":stdout").Err()) // as of an earlier version, which kept none
	for _, from := range []int64{0, at - 5, at + 5} {
		_, err = f.Log(f.ctx, task.TaskID, h.RunID, "stdout", from, 100)
		ok(t, err)
	}
	_, err = f.Log(f.ctx, noTask, "", "stdout", 0, 10)
	refused(t, err, picket.CodeNotFound)
	_, err = f.Log(f.ctx, task.TaskID, noRun, "stdout", 0, 10)
	refused(t, err, picket.CodeNotFound)
	_, err = f.Evidence(f.ctx, task.TaskID, "") // there is none
	ok(t, err)
	f.callTwice(t, func() error { return f.RunEvidence(f.ctx, h, picket.Evidence{Branch: "b", Diff: "+x"}) })
	f.longEvidence(t, task.TaskID)
	for _, run := range []string{"", h.RunID} {
		_, err = f.Evidence(f.ctx, task.TaskID, run)
		ok(t, err)
	}
	_, err = f.Evidence(f.ctx, noTask, "")
	refused(t, err, picket.CodeNotFound)
	_, err = f.Evidence(f.ctx, task.TaskID, noRun)
	refused(t, err, picket.CodeNotFound)
	refusal := picket.Refuse(picket.CodeStaleFence, "", "x")
	for range 22 {
		f.RecordRefusedWrite(f.ctx, h, "renew", refusal)
	}
	f.RecordRefusedWrite(f.ctx, change(func(h *picket.LeaseCredential) { h.RunID = noRun }), "renew",
		refusal.With("presented", int64(1)).With("current", int64(2)))
	_, err = f.Complete(f.ctx, h, picket.Completion{})
	ok(t, err)
	_, _, err = f.Watch(f.ctx, h, time.Millisecond)
	ok(t, err)
	f.callTwice(t, func() error {
		return f.RunExit(f.ctx, h, picket.Exit{Class: picket.ExitKilled, Code: ptr(1), Detail: "d"}, "")
	})
	ok(t, f.RunExit(f.ctx, h, picket.Exit{Class: picket.ExitCrash, Code: ptr(2)}, "")) // the class stays
	f.jumpStoreTime(t, 16*time.Minute)
	refused(t, f.RunExit(f.ctx, h, picket.Exit{Class: picket.ExitKilled}, ""), picket.CodeLeaseExpired)
	f.cancelAll(t)
}

func coverReads(t *testing.T, f *fixture) {
	task, h := f.submitAndLease(t, picket.TaskSpec{Role: "", Labels: map[string]string{"team": "b"}})
	f.mustSubmit(t, picket.TaskSpec{Role: "tester"})
	_, err := f.Report(f.ctx, h, "", picket.Progress{Summary: "s"})
	ok(t, err)
	ctx, cancel := context.WithTimeout(f.ctx, 300*time.Millisecond)
	defer cancel()
	waiting := make(chan struct{})
	go func() { // so that explain has a waiter to look at
		defer close(waiting)
		_, _ = f.Acquire(ctx, operator, picket.AcquireRequest{AgentID: "w", WaitSeconds: ptr(1)})
	}()
	for {
		s, err := f.Stats(f.ctx)
		ok(t, err)
		if s.Waiters > 0 || ctx.Err() != nil {
			break
		}
	}
	_, err = f.Explain(f.ctx, task.TaskID)
	ok(t, err)
	<-waiting
	_, err = f.Explain(f.ctx, noTask)
	refused(t, err, picket.CodeNotFound)
	_, err = f.Task(f.ctx, noTask)
	refused(t, err, picket.CodeNotFound)
	_, err = f.Reports(f.ctx, task.TaskID)
	ok(t, err)
	_, err = f.Reports(f.ctx, noTask)
	refused(t, err, picket.CodeNotFound)
	_, err = f.Leases(f.ctx)
	ok(t, err)
	for _, q := range []picket.TaskQuery{
		{Limit: 1}, {}, {Role: "tester"}, {States: picket.TaskStates, Labels: map[string]string{"team": "b"}},
		{Since: picket.InstantOf(time.Now().Add(time.Hour))}, {Labels: map[string]string{"team": "b"}, Role: "tester"},
	} {
		page, err := f.Tasks(f.ctx, q)
		ok(t, err)
		if page.NextCursor != nil {
			q.Cursor = *page.NextCursor
			_, err = f.Tasks(f.ctx, q)
			ok(t, err)
		}
	}
	f.cancelAll(t)
}

func coverKeys(t *testing.T, f *fixture) {
	req := picket.KeyRequest{Name: "k", Scopes: []picket.Scope{picket.ScopeAdmin}}
	by := idempotent("a")
	k, err := f.CreateKey(f.ctx, by, req)
	ok(t, err)
	_, err = f.CreateKey(f.ctx, by, req)
	ok(t, err)
	by.Idempotency.Body = strings.Repeat("c", 64)
	_, err = f.CreateKey(f.ctx, by, req)
	refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.AdoptKey(f.ctx, operator, "again", k.Key, req.Scopes)
	ok(t, err)
	_, err = f.Keys(f.ctx)
	ok(t, err)
	_, err = f.Authenticate(f.ctx, k.Key)
	ok(t, err)
	_, err = f.Authenticate(f.ctx, k.Key+"x")
	refused(t, err, picket.CodeUnauthenticated)
	_, err = f.RevokeKey(f.ctx, operator, k.KeyID)
	refused(t, err, picket.CodeStateConflict)
	_, err = f.CreateKey(f.ctx, operator, req)
	ok(t, err)
	f.callTwice(t, func() error { _, err := f.RevokeKey(f.ctx, operator, k.KeyID); return err })
	_, err = f.Key(f.ctx, "key_01ARZ3NDEKTSV4RRFFQ69G5FAV")
	refused(t, err, picket.CodeNotFound)
	_, err = f.RevokeKey(f.ctx, operator, "key_01ARZ3NDEKTSV4RRFFQ69G5FAV")
	refused(t, err, picket.CodeNotFound)
}

func coverRetention(t *testing.T, f *fixture) {
	last, err := f.LastSeq(f.ctx)
	ok(t, err)
	for _, keep := range []picket.Retention{{}, {MaxEvents: last - 5},
		{Tasks: time.Nanosecond, Events: time.Nanosecond}} {
		if f.virtual {
			time.Sleep(10 * time.Millisecond)
		}
		for n := 1; n > 0; {
			n, err = f.ApplyRetention(f.ctx, keep, 50)
			ok(t, err)
		}
	}
}

// longEvidence lets a later run have left more than an answer holds.
func (f *fixture) longEvidence(t *testing.T, task string) {
	t.Helper()
	const prefix = "pk:{default}:"
	long := `1 {"branch":"b","diff":"` + strings.Repeat("x", 5<<20) + `"}`
	ok(t, f.raw.RPush(f.ctx, prefix+"runs:"+task, noRun).Err())
	ok(t, f.raw.Set(f.ctx, prefix+"evidence:"+noRun, long, 0).Err())
	list, err := f.Evidence(f.ctx, task, "")
	ok(t, err)
	if len(list) != 1 || len(list[0].Diff) != 5<<20 {
		t.Errorf("%d entries", len(list))
	}
	ok(t, f.raw.RPop(f.ctx, prefix+"runs:"+task).Err())
	ok(t, f.raw.Del(f.ctx, prefix+"evidence:"+noRun).Err())
}
