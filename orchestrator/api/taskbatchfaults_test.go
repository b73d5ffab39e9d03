package api_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/api"
)

// onFaultyStores runs a test against both stores, with a proxy before the store that can lose
// commands and replies.
func onFaultyStores(t *testing.T, test func(t *testing.T, p *fixture, faults *rig.FaultProxy)) {
	t.Helper()
	run := func(t *testing.T, store rig.Store) {
		through, faults := store.Faulty(t)
		p := newFixture(t, through, api.Config{})
		p.submit(`{"title":"the store knows the script now"}`)
		test(t, p, faults)
	}
	t.Run("Memory", func(t *testing.T) {
		store, stop := rig.Memory()
		t.Cleanup(stop)
		run(t, store)
	})
	t.Run("Real", func(t *testing.T) { run(t, rig.Real(t)) })
}

// submitOf matches the command that submits the task with a title.
func (p *fixture) submitOf(title string) rig.Match {
	return func(command []string) bool {
		return rig.CallsVerb(command) && slices.ContainsFunc(command, func(word string) bool {
			return strings.Contains(word, `"title":"`+title+`"`)
		})
	}
}

// The store fails in the middle of a batch. The tasks after that are not tried, and the same batch
// sent again submits the rest, in order, and nothing twice.
func TestAStoreThatFailsInTheMiddleOfABatch(t *testing.T) {
	for _, kind := range []rig.FaultKind{rig.Drop, rig.SwallowReply} {
		t.Run(kind.String(), func(t *testing.T) {
			onFaultyStores(t, func(t *testing.T, p *fixture, faults *rig.FaultProxy) {
				tasks := numberedTasks(6)
				lost := faults.Next(kind, p.submitOf("task 2"))
				first := p.submitBatch(tasks...)
				<-lost.Over()
				p.wantStatuses("201 201 503 503 503 503", first)
				for i, r := range first[2:] {
					e := r.Error
					if r.RetryAfterSeconds != 1 || e["code"] != string(picket.CodeUnavailable) || e["remedy"] == "" ||
						e["retryable"] != true {
						t.Errorf("task %d: %+v", 2+i, r)
					}
				}
				if n := strings.Count(p.log.String(), "request failed"); n != 1 {
					t.Errorf("the failure is logged %d times: %s", n, p.log)
				}
				again := p.submitBatch(tasks...)
				p.wantStatuses("201 201 201 201 201 201", again)
				p.wantTasks(1 + len(tasks))
				p.lease() // of the task before the batch
				for i, r := range again {
					if i < 2 && r.Task.TaskID != first[i].Task.TaskID {
						t.Errorf("task %d was submitted again", i)
					}
					if lease, _ := p.lease(); lease.TaskID != r.Task.TaskID {
						t.Errorf("lease %d is of %q", i, lease.Task.Title)
					}
				}
			})
		})
	}
}

// A batch whose client goes away submits no more.
func TestABatchStopsWhenItsClientGivesUp(t *testing.T) {
	onFaultyStores(t, func(t *testing.T, p *fixture, faults *rig.FaultProxy) {
		held := faults.Next(rig.HoldRequest, p.submitOf("task 2"))
		ctx, giveUp := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := p.send(ctx, "POST", batchPath, p.keys["operator"], batchBody(numberedTasks(50)...))
			done <- err
		}()
		<-held.Struck()
		giveUp()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatalf("the client got %v", err)
		}
		p.stop() // waits for the request
		held.Release()
		<-held.Over()
		page, err := p.Tasks(t.Context(), picket.TaskQuery{Limit: 200})
		must(t, err)
		if len(page.Tasks) > 4 { // one before the batch, two of it, and the one that was held
			t.Errorf("there are %d tasks", len(page.Tasks))
		}
	})
}

// A key that is revoked while its batch is under way submits nothing from then on.
func TestABatchStopsWhenItsKeyIsRevoked(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	through, faults := store.Faulty(t)
	p := newFixture(t, through, api.Config{})
	p.submit(`{"title":"the store knows the script now"}`)
	id := p.keyID("operator")
	revoked, forget := p.KeyContext(t.Context(), id)
	defer forget()
	held := faults.Next(rig.HoldReply, p.submitOf("task 1"))
	go func() {
		<-held.Answered()
		if _, err := p.RevokeKey(context.WithoutCancel(t.Context()), root, id); err != nil {
			t.Error(err)
		}
		<-revoked.Done()
		held.Release()
	}()
	results := p.submitBatch(numberedTasks(400)...) // the server learns of it while a few of them are submitted
	p.wantStatuses("201 201", results[:2])
	submitted := strings.Count(statuses(results), "201")
	for i, r := range results[submitted:] {
		if r.Status != 401 || r.Error["code"] != string(picket.CodeUnauthenticated) {
			t.Errorf("task %d: %+v", submitted+i, r)
		}
	}
	if submitted == len(results) {
		t.Error("a revoked key has submitted the whole batch")
	}
}
