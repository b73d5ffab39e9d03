package orchestrator_test

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
	"github.com/picket-dev/picket/orchestrator/store"
)

func TestSubmitOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		a, err := f.Submit(f.Ctx, kit.Idempotent("1"), picket.TaskSpec{Title: "t"})
		kit.OK(t, err)
		b, err := f.Submit(f.Ctx, kit.Idempotent("1"), picket.TaskSpec{Title: "t"})
		kit.OK(t, err)
		if a.TaskID != b.TaskID {
			t.Fatal("two tasks from one request")
		}
		other := kit.Idempotent("1")
		other.Idempotency.Body = strings.Repeat("c", 64)
		_, err = f.Submit(f.Ctx, other, picket.TaskSpec{Title: "u"})
		kit.Refused(t, err, picket.CodeIdempotencyConflict)
	})
}

func TestAcquireOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		f.MustSubmit(t, picket.TaskSpec{})
		a, err := f.Acquire(f.Ctx, kit.Idempotent("1"), picket.AcquireRequest{})
		kit.OK(t, err)
		b, err := f.Acquire(f.Ctx, kit.Idempotent("1"), picket.AcquireRequest{})
		kit.OK(t, err)
		if a[0].RunID != b[0].RunID || a[0].LeaseToken != b[0].LeaseToken {
			t.Fatal("a replay granted another lease")
		}
		_, err = f.Complete(f.Ctx, f.OpenLease(t, a[0]), picket.Completion{})
		kit.OK(t, err)
		_, err = f.Acquire(f.Ctx, kit.Idempotent("1"), picket.AcquireRequest{})
		kit.Refused(t, err, picket.CodeLeaseExpired)
	})
}

func TestLogKeepsTheLastMebibyte(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		next, err := f.RunLog(f.Ctx, h, picket.LogWrite{Stream: "stdout", Offset: 0, Data: []byte("hello ")})
		kit.OK(t, err)
		again, err := f.RunLog(f.Ctx, h, picket.LogWrite{Stream: "stdout", Offset: 0, Data: []byte("hello world")})
		kit.OK(t, err)
		if next != 6 || again != 11 {
			t.Fatalf("offsets %d %d", next, again)
		}
		_, err = f.RunLog(f.Ctx, h, picket.LogWrite{Stream: "stdout", Offset: 12, Data: []byte("!")})
		kit.Refused(t, err, picket.CodeOffset)
		c, err := f.Log(f.Ctx, task.TaskID, "", "stdout", 3, 4)
		kit.OK(t, err)
		if string(c.Data) != "lo w" || c.Offset != 3 || c.Next != 7 || c.RunID != h.RunID {
			t.Fatalf("chunk %+v %q", c, c.Data)
		}
		at := int64(11)
		chunk := bytes.Repeat([]byte{0xff, 0}, 32<<10)
		for range 20 {
			at, err = f.RunLog(f.Ctx, h, picket.LogWrite{Stream: "stdout", Offset: at, Data: chunk})
			kit.OK(t, err)
		}
		c, err = f.Log(f.Ctx, task.TaskID, "", "stdout", 0, 2<<20)
		kit.OK(t, err)
		if c.Offset == 0 || c.Next != at || len(c.Data) < 1<<20-64<<10 || len(c.Data) > 1<<20+64<<10 {
			t.Fatalf("kept %d bytes from %d to %d of %d", len(c.Data), c.Offset, c.Next, at)
		}
		end := picket.LogWrite{Stream: "stdout", Offset: at - 2, Data: []byte{0xff, 0}, End: true}
		for range 2 { // the answer to the first was lost
			next, err := f.RunLog(f.Ctx, h, end)
			kit.OK(t, err)
			if next != at {
				t.Errorf("the end is at %d, want %d", next, at)
			}
		}
		_, err = f.RunLog(f.Ctx, h, picket.LogWrite{Stream: "stdout", Offset: at, Data: chunk})
		kit.Refused(t, err, picket.CodeStateConflict) // it would push out what the reviewer is to read
		_, err = f.RunLog(f.Ctx, h, picket.LogWrite{Stream: "stderr", Data: chunk})
		kit.OK(t, err)
	})
}

func TestRefusedWritesAreSampled(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		refusal := picket.Refuse(picket.CodeStaleFence, "", "x").With("presented", int64(1)).With("current", int64(2))
		for range 50 {
			f.RecordRefusedWrite(f.Ctx, h, "report_progress", refusal)
		}
		if f.RefusedWrites()[picket.CodeStaleFence] != 50 {
			t.Fatalf("counted %v", f.RefusedWrites())
		}
		f.RunReaperFor(t, 61*time.Second) // a burst that stops is told to its end
		page, err := f.Events(f.Ctx, picket.EventQuery{Types: []string{picket.EventWriteRefused}, Limit: 1000})
		kit.OK(t, err)
		total, last := 0, ""
		for _, e := range page.Events {
			var data struct{ Count int }
			kit.OK(t, stdjson.Unmarshal(e.Data, &data))
			total += data.Count
			last = string(e.Data)
		}
		if n := len(page.Events); total != 50 || n < 21 || n > 42 { // 42 when a minute turned in between
			t.Fatalf("%d events count %d refused writes, the last %s", n, total, last)
		}
	})
}

func TestEventsTailAndRetention(t *testing.T) {
	rig.SkipShort(t)
	onBothStores(t, func(t *testing.T, f *fixture) {
		done := make(chan error, 1)
		started := make(chan struct{})
		go func() {
			close(started)
			done <- f.Tail(f.Ctx, 0)
		}()
		<-started
		task := f.MustSubmit(t, picket.TaskSpec{})
		kit.OK(t, <-done)
		_, err := f.Cancel(f.Ctx, kit.Operator, task.TaskID, "")
		kit.OK(t, err)
		ctx, cancel := context.WithCancel(f.Ctx)
		cancel()
		if err := f.Tail(ctx, 100); err == nil {
			t.Fatal("tail of a cancelled context")
		}
		f.RunReaperFor(t, 5*time.Minute)
		n, err := f.ApplyRetention(f.Ctx, picket.Retention{}, 100)
		kit.OK(t, err)
		if n != 0 {
			t.Fatalf("%d deleted too early", n)
		}
		n, err = f.ApplyRetention(f.Ctx, picket.Retention{Tasks: time.Minute, Events: time.Minute}, 100)
		kit.OK(t, err)
		if n != 3 {
			t.Fatalf("deleted %d, want the task and two events", n)
		}
		_, err = f.Task(f.Ctx, task.TaskID)
		kit.Refused(t, err, picket.CodeNotFound)
		_, err = f.Events(f.Ctx, picket.EventQuery{After: 1})
		kit.Refused(t, err, picket.CodeCursorExpired)
		page, err := f.Events(f.Ctx, picket.EventQuery{After: 2})
		kit.OK(t, err)
		if len(page.Events) != 0 || page.Next != "2" {
			t.Fatalf("page %+v", page)
		}
	})
}

// A process that was asking for a key while it was revoked does not remember it
// as valid.
func TestAKeyRevokedWhileItIsReadIsForgotten(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.Close()
	for range 100 {
		k, err := f.CreateKey(f.Ctx, kit.Operator,
			picket.KeyRequest{Name: "worker", Scopes: []picket.Scope{picket.ScopeAgent}})
		kit.OK(t, err)
		var readers sync.WaitGroup
		for range 8 {
			readers.Go(func() { _, _ = f.Authenticate(f.Ctx, k.Key) })
		}
		_, err = f.RevokeKey(f.Ctx, kit.Operator, k.KeyID)
		kit.OK(t, err)
		readers.Wait()
		_, err = f.Authenticate(f.Ctx, k.Key)
		kit.Refused(t, err, picket.CodeUnauthenticated)
	}
}

// A process that has missed the message of a revocation asks again as soon as it
// hears messages once more, which is sooner than it forgets keys.
func TestAMissedRevocationIsNotTrusted(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.Close()
	other := f.OpenProcess(t, f.RigStore, orchestrator.Config{}).Engine("default")
	k, err := f.CreateKey(f.Ctx, kit.Operator, picket.KeyRequest{Name: "worker",
		Scopes: []picket.Scope{picket.ScopeAgent}})
	kit.OK(t, err)
	_, err = other.Authenticate(f.Ctx, k.Key)
	kit.OK(t, err)
	kit.OK(t, f.Raw.Do(f.Ctx, "CLIENT", "KILL", "TYPE", "pubsub").Err())
	_, err = f.RevokeKey(f.Ctx, kit.Operator, k.KeyID)
	kit.OK(t, err)
	for end := time.Now().Add(4 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err = other.Authenticate(f.Ctx, k.Key); picket.CodeOf(err) == picket.CodeUnauthenticated {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after 4 s the other process says %v", err)
		}
	}
}

// A revocation that is refused changes nothing: the keys that the process trusts are not
// asked for again.
func TestARefusedRevocationForgetsNoKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		k, err := f.CreateKey(f.Ctx, kit.Operator,
			picket.KeyRequest{Name: "worker", Scopes: []picket.Scope{picket.ScopeAgent}})
		kit.OK(t, err)
		asked := func() int64 {
			_, err := f.Authenticate(f.Ctx, k.Key)
			kit.OK(t, err)
			all := f.Store.ScriptStats()
			i := slices.IndexFunc(all, func(s store.ScriptStats) bool { return s.Script == "keys" })
			return all[i].Count
		}
		before := asked()
		_, err = f.RevokeKey(f.Ctx, kit.Operator, "key_00000000000000000000000000")
		kit.Refused(t, err, picket.CodeNotFound)
		_, err = f.RevokeKey(f.Ctx, kit.Operator, "no id")
		kit.Refused(t, err, picket.CodeValidation)
		if after := asked(); after != before {
			t.Errorf("the store was asked for a key %d times after a refusal", after-before)
		}
	})
}

func TestKeys(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		k, err := f.CreateKey(f.Ctx, kit.Operator,
			picket.KeyRequest{Name: "worker", Scopes: []picket.Scope{picket.ScopeAgent}})
		kit.OK(t, err)
		p, err := f.Authenticate(f.Ctx, k.Key)
		kit.OK(t, err)
		if p.KeyID != k.KeyID || !p.May(picket.ScopeAgent) || p.May(picket.ScopeOperator) {
			t.Fatalf("principal %+v", p)
		}
		_, err = f.Authenticate(f.Ctx, k.Key+"x")
		kit.Refused(t, err, picket.CodeUnauthenticated)
		_, err = f.RevokeKey(f.Ctx, kit.Operator, k.KeyID)
		kit.OK(t, err)
		_, err = f.Authenticate(f.Ctx, k.Key)
		kit.Refused(t, err, picket.CodeUnauthenticated)
		a, err := f.CreateKey(f.Ctx, kit.Idempotent("k"),
			picket.KeyRequest{Name: "same", Scopes: []picket.Scope{picket.ScopeAdmin}})
		kit.OK(t, err)
		b, err := f.CreateKey(f.Ctx, kit.Idempotent("k"),
			picket.KeyRequest{Name: "same", Scopes: []picket.Scope{picket.ScopeAdmin}})
		kit.OK(t, err)
		if a != b {
			t.Fatal("a replay made another key")
		}
		all, err := f.Keys(f.Ctx)
		kit.OK(t, err)
		if len(all) != 2 || all[0].RevokedAt.IsZero() {
			t.Fatalf("keys %+v", all)
		}
		adopted, err := f.AdoptKey(f.Ctx, kit.Operator, "again", a.Key, []picket.Scope{picket.ScopeAdmin})
		kit.OK(t, err)
		if adopted.KeyID != a.KeyID {
			t.Fatal("a known key was recorded twice")
		}
	})
}

func TestListPagesNewestFirst(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		var ids []string
		for i := range 25 {
			role := "even"
			if i%2 == 1 {
				role = "odd"
			}
			ids = append([]string{f.MustSubmit(t, picket.TaskSpec{Role: role}).TaskID}, ids...)
		}
		_, err := f.Cancel(f.Ctx, kit.Operator, ids[3], "")
		kit.OK(t, err)
		for _, states := range [][]picket.TaskState{nil, {picket.TaskQueued, picket.TaskCancelled}} {
			var got []string
			q := picket.TaskQuery{Limit: 7, States: states}
			for {
				page, err := f.Tasks(f.Ctx, q)
				kit.OK(t, err)
				for _, task := range page.Tasks {
					got = append(got, task.TaskID)
				}
				if page.NextCursor == nil {
					break
				}
				q.Cursor = *page.NextCursor
			}
			if strings.Join(got, " ") != strings.Join(ids, " ") {
				t.Fatalf("paged %v, want %v", got, ids)
			}
		}
		page, err := f.Tasks(f.Ctx, picket.TaskQuery{Role: "odd", States: []picket.TaskState{picket.TaskQueued}})
		kit.OK(t, err)
		for _, task := range page.Tasks {
			if task.Role != "odd" || task.State != picket.TaskQueued {
				t.Fatalf("listed %+v", task)
			}
		}
	})
}

func TestReadySaysWhenNoReaperTicks(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		kit.Refused(t, f.Ready(f.Ctx), picket.CodeUnavailable)
		kit.OK(t, f.Tick(f.Ctx))
		kit.OK(t, f.Ready(f.Ctx))
	})
}
