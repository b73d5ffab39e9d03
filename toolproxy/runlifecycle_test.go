package toolproxy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// post calls a route with a lease's own credential.
func (h *engineEnv) post(l picket.Lease, path, body string) answer {
	h.t.Helper()
	return h.call(h.t, request{path: path, body: body, bearer: l.LeaseToken.Reveal(), fence: show(l.FencingToken)})
}

// sendLog sends a chunk of stdout.
func (h *engineEnv) sendLog(l picket.Lease, offset, data string) answer {
	h.t.Helper()
	return h.call(h.t, request{
		path:   "/v1/run/logs?stream=stdout&offset=" + offset,
		body:   data,
		kind:   "text/plain",
		bearer: l.LeaseToken.Reveal(),
	})
}

func (h *engineEnv) expectAnswer(a answer, status int, parts ...string) {
	h.t.Helper()
	if a.status != status {
		h.t.Fatalf("%d %s, want %d", a.status, a.raw, status)
	}
	for _, part := range parts {
		if !strings.Contains(a.raw, part) {
			h.t.Errorf("%s does not hold %s", a.raw, part)
		}
	}
}

func TestRunLifecycle(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		l := h.submitAndLease()
		h.expectAnswer(h.post(l, "/v1/lease/renew", `{}`), 200, `"leaseTtlMs":300000`, `"fencingToken":1`,
			`"commands":[]`,
			`"leaseExpiresAt":"`)
		h.expectAnswer(h.post(l, "/v1/tools/get_task", `{}`), 200, `"taskId":"`+l.TaskID+`"`, `"state":"leased"`)
		h.expectAnswer(h.post(l, "/v1/run/events", `{"events":[{"type":"run.launched","containment":"group"},
			{"type":"agent-heartbeat","agent":"coder","taskId":"`+l.TaskID+
			`","elapsedSeconds":30,"timeoutPercentage":0.05}]}`), 200, `{}`)

		first := `{"summary":"read it","beliefs":["it is flaky"],"attempted":[{"action":"run","outcome":"red"}],"nextStep":"fix","blockers":[]}`
		h.expectAnswer(h.post(l, "/v1/tools/report_progress", first), 200, `{"seq":1,"pinned":true}`)
		report := request{
			path:   "/v1/tools/report_progress",
			body:   `{"summary":"fixed it"}`,
			bearer: l.LeaseToken.Reveal(),
			header: map[string]string{"Idempotency-Key": "r-2"},
		}
		h.expectAnswer(h.call(t, report), 200, `{"seq":2,"pinned":true}`)
		h.expectAnswer(h.call(t, report), 200, `{"seq":2,"pinned":true}`) // a lost reply repeated
		report.body = `{"summary":"something else"}`
		h.expectAnswer(h.call(t, report), 422, `"code":"idempotency_conflict"`)

		done := `{"output":{"n":12345678901234567890},"summary":"done"}`
		h.expectAnswer(h.post(l, "/v1/tools/mark_complete", done), 200, `{"state":"review"}`)
		h.expectAnswer(h.post(l, "/v1/tools/mark_complete", done), 200, `{"state":"review"}`)
		h.expectAnswer(h.post(l, "/v1/tools/mark_complete", `{"output":"no, this"}`), 412, `"code":"lease_released"`)

		task, err := h.Task(h.ctx, l.TaskID)
		h.ok(err)
		if task.State != picket.TaskReview || string(task.Output) != `{"n":12345678901234567890}` ||
			task.LastReport.Summary != "fixed it" {
			t.Fatalf("%+v", task)
		}
	})
}

func TestEveryWayToEndALease(t *testing.T) {
	for _, c := range []struct {
		name  string
		path  string
		body  string
		again string
		state string
	}{
		{"crash", "/v1/lease/release",
			`{"exit":{"class":"crash","code":137,"signal":"SIGKILL","durationMs":5},"detail":"killed"}`, "", "queued"},
		{"give-back", "/v1/lease/release", ``, "", "queued"},
		{"retryable", "/v1/tools/mark_failed", `{"reason":"no network"}`, "", "queued"},
		{"hopeless", "/v1/tools/mark_failed", `{"reason":"no such repository","retryable":false}`, "", "handoff"},
		{"help", "/v1/tools/request_human_help", `{"question":"which?","options":["a","b"]}`, `{"question":"other?"}`,
			"handoff"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onBothStores(t, func(t *testing.T, h *engineEnv) {
				l := h.submitAndLease()
				a := h.post(l, c.path, c.body)
				h.expectAnswer(a, 200, `"state":"`+c.state+`"`)
				h.expectAnswer(h.post(l, c.path, c.body), 200, a.raw) // the same again, the same answer
				if c.again != "" {
					h.expectAnswer(h.post(l, c.path, c.again), 412, `"code":"lease_released"`)
				}
				h.expectAnswer(h.post(l, "/v1/lease/renew", `{}`), 412, `"code":"lease_released"`)
				task, err := h.Task(h.ctx, l.TaskID)
				h.ok(err)
				if string(task.State) != c.state {
					t.Errorf("the task is %s", task.State)
				}
			})
		})
	}
}

// Evidence is taken from a run whose lease has ended, for 15 minutes, and
// leaves the task alone.
func TestEvidenceAfterTheEnd(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		l := h.submitAndLease()
		h.expectAnswer(h.sendLog(l, "0", "hello "), 200, `{"next":6}`)
		h.expectAnswer(h.post(l, "/v1/tools/mark_complete", `{"output":1}`), 200)
		h.advance(14 * time.Minute)
		h.expectAnswer(h.sendLog(l, "6", "world"), 200, `{"next":11}`)
		h.expectAnswer(h.sendLog(l, "0", "hello world"), 200, `{"next":11}`) // known already
		h.expectAnswer(h.sendLog(l, "12", "?"), 409, `"code":"offset_conflict"`, `"expected":11`)
		h.expectAnswer(h.post(l, "/v1/run/exit",
			`{"class":"success","code":0,"containment":"group","durationMs":1200}`), 200,
			`{}`)
		h.expectAnswer(h.post(l, "/v1/run/events",
			`{"events":[{"type":"agent-timed-out","agent":"coder","timeoutSeconds":600}]}`), 200)
		task, err := h.Task(h.ctx, l.TaskID)
		h.ok(err)
		run := task.Runs[0]
		if task.State != picket.TaskReview || run.Exit == nil || run.Exit.Class != picket.ExitSuccess ||
			*run.Exit.Code != 0 || run.Containment != "group" {
			t.Errorf("task %s, exit %+v, containment %q", task.State, run.Exit, run.Containment)
		}
		chunk, err := h.Log(h.ctx, l.TaskID, "", "stdout", 0, 100)
		h.ok(err)
		if string(chunk.Data) != "hello world" {
			t.Errorf("the log holds %q", chunk.Data)
		}

		h.advance(time.Minute + time.Second)
		for _, a := range []answer{h.sendLog(l, "11", "!"), h.post(l, "/v1/run/exit", `{"class":"crash","code":1}`),
			h.post(l, "/v1/run/events", goodRequests["events"].body)} {
			h.expectAnswer(a, 412, `"code":"lease_expired"`, "15 minutes")
		}
	})
}

// The server's word on how a run ended stays; the exit fills in the rest.
func TestALaterExitDoesNotChangeTheClass(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		l := h.submitAndLease()
		h.expire()
		h.expectAnswer(h.post(l, "/v1/run/exit", `{"class":"lease_lost","code":137,"signal":"SIGKILL","durationMs":5}`),
			200)
		task, err := h.Task(h.ctx, l.TaskID)
		h.ok(err)
		exit := task.Runs[0].Exit
		if exit == nil || exit.Class != picket.ExitLeaseExpired || exit.Code == nil || *exit.Code != 137 ||
			*exit.Signal != "SIGKILL" {
			t.Errorf("exit %+v", exit)
		}
	})
}
