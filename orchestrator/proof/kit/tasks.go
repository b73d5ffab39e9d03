package kit

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// CancelAndRetry cancels a task and makes it again.
func (f *Fixture) CancelAndRetry(t *testing.T, id string) string {
	t.Helper()
	_, err := f.Cancel(f.Ctx, Operator, id, "")
	OK(t, err)
	by := picket.Caller{
		Actor:       "key_a",
		Idempotency: picket.Idempotency{Key: "anew " + id, Body: strings.Repeat("0", 64)},
	}
	first, err := f.Retry(f.Ctx, by, id, "")
	OK(t, err)
	again, err := f.Retry(f.Ctx, by, id, "") // its answer was lost
	OK(t, err)
	if first.TaskID == id || *first.Retries != id || again.TaskID != first.TaskID {
		t.Fatalf("%s was made again as %s, then %s", id, first.TaskID, again.TaskID)
	}
	return first.TaskID
}

func EvidenceWithDiff(text string) picket.Evidence {
	return picket.Evidence{Branch: "picket/t", Base: "abc", Diff: text, Files: []picket.ChangedFile{{Path: "a"}}}
}

// LeaseWithExec is a lease whose adapter starts processes for it.
func (f *Fixture) LeaseWithExec(t *testing.T) (picket.Lease, picket.LeaseCredential) {
	t.Helper()
	f.MustSubmit(t, picket.TaskSpec{})
	l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
	h := f.OpenLease(t, l)
	_, err := f.Renew(f.Ctx, h)
	OK(t, err)
	OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched, Exec: true}}))
	return l, h
}

func ExecOrder(id string) picket.ExecRequest {
	return picket.ExecRequest{CallID: id, Argv: []string{"go", "vet"}, Stdin: "é", TimeoutSeconds: 20, TTLMs: 30_000}
}

const (
	NoTask = "task_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	NoRun  = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	NoHelp = "handoff_01ARZ3NDEKTSV4RRFFQ69G5FAV"
)

func Idempotent(key string) picket.Caller {
	return picket.Caller{
		Actor:       "key_test",
		Idempotency: picket.Idempotency{Key: strings.Repeat(key, 64), Body: strings.Repeat("b", 64)},
	}
}

func RetryOn(attempts, backoff int, on ...picket.ExitClass) *picket.Retry {
	return &picket.Retry{MaxAttempts: &attempts, BackoffSeconds: &backoff, On: on}
}
