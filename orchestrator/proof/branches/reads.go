package branches

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func coverEvidence(t *testing.T, f *fixture) {
	task, h := f.SubmitAndLease(t, picket.TaskSpec{})
	change := func(act func(*picket.LeaseCredential)) picket.LeaseCredential {
		other := h
		act(&other)
		return other
	}
	empty, err := f.Log(f.Ctx, f.MustSubmit(t, picket.TaskSpec{}).TaskID, "", "stdout", 0, 10) // it never ran
	kit.OK(t, err)
	if len(empty.Data) > 0 {
		t.Fatalf("a log of nothing: %+v", empty)
	}
	for _, c := range []struct {
		h    picket.LeaseCredential
		code picket.Code
	}{
		{change(func(h *picket.LeaseCredential) { h.RunID = kit.NoRun }), picket.CodeLeaseExpired},
		{change(func(h *picket.LeaseCredential) { h.TaskID = kit.NoTask }), picket.CodeTaskMismatch},
		{change(func(h *picket.LeaseCredential) { h.Fence = 99 }), picket.CodeUnknownFence},
	} {
		_, err := f.RunLog(f.Ctx, c.h, picket.LogWrite{Stream: "stdout", Offset: 0, Data: []byte("x")})
		kit.Refused(t, err, c.code)
		kit.Refused(t, f.RunExit(f.Ctx, c.h, picket.Exit{Class: picket.ExitKilled}, ""), c.code)
		kit.Refused(t, f.RunEvidence(f.Ctx, c.h, picket.Evidence{Branch: "b"}), c.code)
		kit.Refused(t, f.RunEvents(f.Ctx, c.h, []picket.RunEvent{{Type: picket.EventAgentHeartbeat}}), c.code)
		_, _, err = f.Watch(f.Ctx, c.h, time.Millisecond)
		if c.h.Fence == 0 {
			kit.Refused(t, err, c.code)
		}
	}
	h.Fence = f.WantState(t, task.TaskID, picket.TaskLeased).FencingToken
	_, _, err = f.Watch(f.Ctx, h, time.Millisecond)
	kit.OK(t, err)
	kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{{Type: picket.EventAgentHeartbeat},
		{Type: picket.EventRunLaunched}}))
	f.CallTwice(t, func() error {
		return f.RunEvents(f.Ctx, h,
			[]picket.RunEvent{{Type: picket.EventAgentTimedOut, ID: "e1"},
				{Type: picket.EventRunStalled, ID: "e2", IdleSeconds: kit.Ptr(60.0)}})
	})
	at := int64(0)
	chunk := bytes.Repeat([]byte("x"), 48<<10)
	for range 24 { // more than a mebibyte, in pieces of no round size
		at, err = f.RunLog(f.Ctx, h, picket.LogWrite{Stream: "stdout", Offset: at, Data: chunk})
		kit.OK(t, err)
	}
	_, err = f.RunLog(f.Ctx, h, picket.LogWrite{Stream: "stdout", Offset: 0, Data: chunk}) // known
	kit.OK(t, err)
	_, err = f.RunLog(f.Ctx, h, picket.LogWrite{Stream: "stdout", Offset: at + 1, Data: chunk})
	kit.Refused(t, err, picket.CodeOffset)
	_, err = f.RunLog(f.Ctx, h, picket.LogWrite{Stream: "stdout", Offset: at, End: true})
	kit.OK(t, err)
	_, err = f.RunLog(f.Ctx, h, picket.LogWrite{Stream: "stdout", Offset: at, Data: chunk})
	kit.Refused(t, err, picket.CodeStateConflict)
	// An earlier version kept no marks.
	kit.OK(t, f.Raw.LPop(f.Ctx, "pk:{default}:marks:"+h.RunID+":stdout").Err())
	for _, from := range []int64{0, at - 5, at + 5} {
		_, err = f.Log(f.Ctx, task.TaskID, h.RunID, "stdout", from, 100)
		kit.OK(t, err)
	}
	_, err = f.Log(f.Ctx, kit.NoTask, "", "stdout", 0, 10)
	kit.Refused(t, err, picket.CodeNotFound)
	_, err = f.Log(f.Ctx, task.TaskID, kit.NoRun, "stdout", 0, 10)
	kit.Refused(t, err, picket.CodeNotFound)
	_, err = f.Evidence(f.Ctx, task.TaskID, "") // there is none
	kit.OK(t, err)
	f.CallTwice(t, func() error { return f.RunEvidence(f.Ctx, h, picket.Evidence{Branch: "b", Diff: "+x"}) })
	f.longEvidence(t, task.TaskID)
	for _, run := range []string{"", h.RunID} {
		_, err = f.Evidence(f.Ctx, task.TaskID, run)
		kit.OK(t, err)
	}
	_, err = f.Evidence(f.Ctx, kit.NoTask, "")
	kit.Refused(t, err, picket.CodeNotFound)
	_, err = f.Evidence(f.Ctx, task.TaskID, kit.NoRun)
	kit.Refused(t, err, picket.CodeNotFound)
	refusal := picket.Refuse(picket.CodeStaleFence, "", "x")
	for range 22 {
		f.RecordRefusedWrite(f.Ctx, h, "renew", refusal)
	}
	f.RecordRefusedWrite(f.Ctx, change(func(h *picket.LeaseCredential) { h.RunID = kit.NoRun }), "renew",
		refusal.With("presented", int64(1)).With("current", int64(2)))
	_, err = f.Complete(f.Ctx, h, picket.Completion{})
	kit.OK(t, err)
	_, _, err = f.Watch(f.Ctx, h, time.Millisecond)
	kit.OK(t, err)
	f.CallTwice(t, func() error {
		return f.RunExit(f.Ctx, h, picket.Exit{Class: picket.ExitKilled, Code: kit.Ptr(1), Detail: "d"}, "")
	})
	kit.OK(t, f.RunExit(f.Ctx, h, picket.Exit{Class: picket.ExitCrash, Code: kit.Ptr(2)}, "")) // the class stays
	f.JumpStoreTime(t, 16*time.Minute)
	kit.Refused(t, f.RunExit(f.Ctx, h, picket.Exit{Class: picket.ExitKilled}, ""), picket.CodeLeaseExpired)
	f.CancelAll(t)
}

func coverReads(t *testing.T, f *fixture) {
	task, h := f.SubmitAndLease(t, picket.TaskSpec{Role: "", Labels: map[string]string{"team": "b"}})
	f.MustSubmit(t, picket.TaskSpec{Role: "tester"})
	_, err := f.Report(f.Ctx, h, "", picket.Progress{Summary: "s"})
	kit.OK(t, err)
	ctx, cancel := context.WithTimeout(f.Ctx, 300*time.Millisecond)
	defer cancel()
	waiting := make(chan struct{})
	go func() { // so that explain has a waiter to look at
		defer close(waiting)
		_, _ = f.Acquire(ctx, kit.Operator, picket.AcquireRequest{AgentID: "w", WaitSeconds: kit.Ptr(1)})
	}()
	for {
		s, err := f.Stats(f.Ctx)
		kit.OK(t, err)
		if s.Waiters > 0 || ctx.Err() != nil {
			break
		}
	}
	_, err = f.Explain(f.Ctx, task.TaskID)
	kit.OK(t, err)
	<-waiting
	_, err = f.Explain(f.Ctx, kit.NoTask)
	kit.Refused(t, err, picket.CodeNotFound)
	_, err = f.Task(f.Ctx, kit.NoTask)
	kit.Refused(t, err, picket.CodeNotFound)
	_, err = f.Reports(f.Ctx, task.TaskID)
	kit.OK(t, err)
	_, err = f.Reports(f.Ctx, kit.NoTask)
	kit.Refused(t, err, picket.CodeNotFound)
	other, _ := f.SubmitAndLease(t, picket.TaskSpec{})
	for _, id := range []string{task.TaskID, other.TaskID} {
		long := `{"title":"` + strings.Repeat("x", 5<<20) + `"}`
		kit.OK(t, f.Raw.Set(f.Ctx, "pk:{default}:spec:"+id, long, 0).Err())
	}
	if page, err := f.Leases(f.Ctx); err != nil || len(page.Leases) != 1 {
		t.Errorf("%d leases are listed: %v", len(page.Leases), err)
	}
	f.MustRegister(t, picket.Registration{AgentID: "lister"})
	var nudged picket.LeaseCredential
	for range 2 {
		f.MustSubmit(t, picket.TaskSpec{Agent: "lister", TimeoutSeconds: kit.Ptr(60)})
		nudged = f.OpenLease(t, f.AcquireAsOwner(t, "lister"))
	}
	stalled := picket.RunEvent{Type: picket.EventRunStalled, ID: "1", IdleSeconds: kit.Ptr(9.0)}
	kit.OK(t, f.RunEvents(f.Ctx, nudged, []picket.RunEvent{stalled}))
	for _, q := range []picket.LeaseQuery{{Order: picket.LeasesByNeed}, {TaskID: task.TaskID}, {TaskID: kit.NoTask},
		{AgentID: "lister"}, {AgentID: "a1"}, {AgentID: "nobody"}} {
		_, err := f.FindLeases(f.Ctx, q)
		kit.OK(t, err)
	}
	for _, q := range []picket.TaskQuery{
		{Limit: 1}, {}, {Role: "tester"}, {States: picket.TaskStates, Labels: map[string]string{"team": "b"}},
		{Since: picket.InstantOf(time.Now().Add(time.Hour))}, {Labels: map[string]string{"team": "b"}, Role: "tester"},
	} {
		page, err := f.Tasks(f.Ctx, q)
		kit.OK(t, err)
		if page.NextCursor != nil {
			q.Cursor = *page.NextCursor
			_, err = f.Tasks(f.Ctx, q)
			kit.OK(t, err)
		}
	}
	f.CancelAll(t)
}

func coverKeys(t *testing.T, f *fixture) {
	req := picket.KeyRequest{Name: "k", Scopes: []picket.Scope{picket.ScopeAdmin}}
	by := kit.Idempotent("a")
	k, err := f.CreateKey(f.Ctx, by, req)
	kit.OK(t, err)
	_, err = f.CreateKey(f.Ctx, by, req)
	kit.OK(t, err)
	by.Idempotency.Body = strings.Repeat("c", 64)
	_, err = f.CreateKey(f.Ctx, by, req)
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.AdoptKey(f.Ctx, kit.Operator, "again", k.Key, req.Scopes)
	kit.OK(t, err)
	f.MustCreateClientKey(t, "builder", "reviewer")
	_, err = f.Keys(f.Ctx)
	kit.OK(t, err)
	_, err = f.Authenticate(f.Ctx, k.Key)
	kit.OK(t, err)
	_, err = f.Authenticate(f.Ctx, k.Key+"x")
	kit.Refused(t, err, picket.CodeUnauthenticated)
	_, err = f.RevokeKey(f.Ctx, kit.Operator, k.KeyID)
	kit.Refused(t, err, picket.CodeStateConflict)
	_, err = f.CreateKey(f.Ctx, kit.Operator, req)
	kit.OK(t, err)
	f.CallTwice(t, func() error { _, err := f.RevokeKey(f.Ctx, kit.Operator, k.KeyID); return err })
	_, err = f.Key(f.Ctx, "key_01ARZ3NDEKTSV4RRFFQ69G5FAV")
	kit.Refused(t, err, picket.CodeNotFound)
	_, err = f.RevokeKey(f.Ctx, kit.Operator, "key_01ARZ3NDEKTSV4RRFFQ69G5FAV")
	kit.Refused(t, err, picket.CodeNotFound)
}

func coverRetention(t *testing.T, f *fixture) {
	last, err := f.LastSeq(f.Ctx)
	kit.OK(t, err)
	for _, keep := range []picket.Retention{{}, {MaxEvents: last - 5},
		{Tasks: time.Nanosecond, Events: time.Nanosecond}} {
		if f.Virtual {
			time.Sleep(10 * time.Millisecond)
		}
		for n := 1; n > 0; {
			n, err = f.ApplyRetention(f.Ctx, keep, 50)
			kit.OK(t, err)
		}
	}
}

// longEvidence lets a later run have left more than an answer holds.
func (f *fixture) longEvidence(t *testing.T, task string) {
	t.Helper()
	const prefix = "pk:{default}:"
	long := `1 {"branch":"b","diff":"` + strings.Repeat("x", 5<<20) + `"}`
	last, err := f.Raw.HGet(f.Ctx, prefix+"task:"+task, "run").Result()
	kit.OK(t, err)
	kit.OK(t, f.Raw.RPush(f.Ctx, prefix+"runs:"+task, last).Err())
	kit.OK(t, f.Raw.HSet(f.Ctx, prefix+"task:"+task, "run", kit.NoRun).Err())
	kit.OK(t, f.Raw.Set(f.Ctx, prefix+"evidence:"+kit.NoRun, long, 0).Err())
	list, err := f.Evidence(f.Ctx, task, "")
	kit.OK(t, err)
	if len(list) != 1 || len(list[0].Diff) != 5<<20 {
		t.Errorf("%d entries", len(list))
	}
	kit.OK(t, f.Raw.RPop(f.Ctx, prefix+"runs:"+task).Err())
	kit.OK(t, f.Raw.HSet(f.Ctx, prefix+"task:"+task, "run", last).Err())
	kit.OK(t, f.Raw.Del(f.Ctx, prefix+"evidence:"+kit.NoRun).Err())
}
