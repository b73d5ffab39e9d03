package toolproxy_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// writes are the calls whose refusal belongs into the event log.
var writes = []string{"bundle", "bundle_piece", "delegate_subtask", "emit", "emit_status",
	"events", "evidence", "exec", "exit", "logs", "mark_complete", "mark_failed",
	"release", "reply", "report_progress", "request_human_help", "review_subtask", "send_message",
	"usage"}

func TestRefusedWritesAreRecordedReadsAreNot(t *testing.T) {
	var recorded []string
	for name, call := range goodRequests {
		d := &fakeBackend{err: picket.Refuse(picket.CodeStaleFence, "Stop writing and exit.", "superseded")}
		f := newProxyEnv(t, d)
		if a := f.call(t, call.with(f.token(), "")); a.status != 412 || a.code() != "stale_fence" || a.remedy() == "" {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
		for _, r := range d.refused {
			if r != name+" stale_fence" {
				t.Errorf("%s was recorded as %q", name, r)
			}
			recorded = append(recorded, name)
		}
	}
	slices.Sort(recorded)
	if !slices.Equal(recorded, writes) {
		t.Errorf("recorded %v, want %v", recorded, writes)
	}
}

func TestOnlyTheFenceMakesARefusedWrite(t *testing.T) {
	for _, err := range []error{
		picket.Refuse(picket.CodeUnavailable, "Wait.", "away").WithCause(picket.ErrUnknown),
		picket.Refuse(picket.CodeIdempotencyConflict, "Use another key.", "other body"),
		picket.Refuse(picket.CodeOffset, "Go on at expected.", "gap"),
		errors.New("a bug"),
	} {
		for name, call := range goodRequests {
			d := &fakeBackend{err: err}
			f := newProxyEnv(t, d).undescribed() // not every code belongs to every route
			a := f.call(t, call.with(f.token(), ""))
			if a.status != picket.CodeOf(err).Status() || len(d.refused) != 0 {
				t.Errorf("%s with %v: %d %s, recorded %v", name, err, a.status, a.raw, d.refused)
			}
			if a.status == 503 && a.header.Get("Retry-After") == "" {
				t.Errorf("%s: 503 without Retry-After", name)
			}
			if strings.Contains(a.raw, "a bug") {
				t.Errorf("%s shows an internal error: %s", name, a.raw)
			}
		}
	}
}
