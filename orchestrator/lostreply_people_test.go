package orchestrator_test

import (
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

// asking is a set-up with one task that waits for a person.
func asking(w *lostWorld) {
	confirmed(picket.TaskSpec{})(w)
	_, err := w.direct.Report(w.ctx, w.held, "r0", picket.Progress{Summary: "so far"})
	ok(w.t, err)
	h, err := w.direct.RequestHelp(w.ctx, w.held,
		picket.HelpRequest{
			Question:        "which one?",
			Options:         []string{"a", "b"},
			DeadlineSeconds: ptr(60),
			OnDeadline:      picket.OnDeadlineEscalate,
		})
	ok(w.t, err)
	w.handoff = h.HandoffID
}

// reviewed is a set-up with one task that waits for its review.
func inReview(w *lostWorld) {
	confirmed(picket.TaskSpec{})(w)
	_, err := w.direct.Complete(w.ctx, w.held, picket.Completion{Output: picket.RawJSON(`"done"`)})
	ok(w.t, err)
}

// stuck is a set-up with one task that was escalated.
func stuck(w *lostWorld) {
	confirmed(flaky)(w)
	_, err := w.direct.Fail(w.ctx, w.held, "no way", false)
	ok(w.t, err)
}

var peopleCases = []lostCase{
	{name: "claim", setup: asking,
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			return e.Claim(w.ctx, asked("1"), w.handoff, false)
		}},
	{name: "answer", setup: asking,
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			return e.Answer(w.ctx, asked("1"), w.handoff, picket.AnswerRequest{Option: ptr("b")})
		}},
	{name: "answer/escalation", setup: func(w *lostWorld) {
		stuck(w)
		w.handoff = "handoff_" + strings.TrimPrefix(w.run, "run_")
	}, call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
		return e.Answer(w.ctx, asked("1"), w.handoff, picket.AnswerRequest{Answer: picket.RawJSON(`"try harder"`)})
	}},
	{name: "finish", setup: asking,
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			return e.Finish(w.ctx, asked("1"), w.handoff, picket.RawJSON(`{"by":"hand"}`))
		}},
	{name: "review", setup: inReview,
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			return e.Approve(w.ctx, asked("1"), w.task.TaskID, picket.Decision{Note: "good"})
		}},
	{name: "review/reject", setup: inReview,
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			task, fix, err := e.Reject(w.ctx, asked("1"), w.task.TaskID, picket.Decision{Note: "bad"}, nil)
			return []any{task, fix}, err
		}},
	{name: "bulk", setup: threeInReview, stages: oneAfterTheOther, call: approveThree},
	{name: "review/bulk", setup: threeInReview, stages: oneAfterTheOther, call: approveThree},
	{
		name:  "review/fix",
		setup: inReview,
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			task, fix, err := e.Reject(w.ctx, asked("1"), w.task.TaskID, picket.Decision{Note: "bad"},
				&picket.TaskSpec{Title: "mend it", Role: "coder"})
			return []any{task, fix}, err
		},
	},
}

var operatorCases = []lostCase{
	{name: "cancel", setup: func(w *lostWorld) { w.submitted(picket.TaskSpec{}) }, call: cancelTask},
	{name: "cancel/leased", setup: confirmed(picket.TaskSpec{}), call: cancelTask},
	{name: "cancel/handoff", setup: asking,
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			return e.CancelHandoff(w.ctx, asked("1"), w.handoff, "no need")
		}},
	{name: "retry", setup: stuck, call: retryTask},
	{name: "retry/closed", setup: func(w *lostWorld) {
		asking(w)
		_, err := w.direct.Answer(w.ctx, operator, w.handoff, picket.AnswerRequest{Option: ptr("b")})
		ok(w.t, err)
		_, err = w.direct.Cancel(w.ctx, operator, w.task.TaskID, "")
		ok(w.t, err)
	}, call: retryTask},
	{name: "expire", setup: confirmed(flaky),
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			return e.Expire(w.ctx, asked("1"), w.task.TaskID, "it hangs")
		}},
	{name: "pause", setup: confirmed(picket.TaskSpec{}),
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			return e.Pause(w.ctx, asked("1"), false, "lunch")
		}},
	{name: "pause/hard", setup: confirmed(picket.TaskSpec{}),
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			return e.Pause(w.ctx, asked("1"), true, "fire")
		}},
	{name: "resume", setup: func(w *lostWorld) {
		_, err := w.direct.Pause(w.ctx, operator, true, "fire")
		ok(w.t, err)
	}, call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
		return e.Resume(w.ctx, asked("1"), "it is out")
	}},
	{
		name:  "key_create",
		setup: func(*lostWorld) {},
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			return e.CreateKey(w.ctx, asked("1"),
				picket.KeyRequest{Name: "ci", Scopes: []picket.Scope{picket.ScopeAgent}})
		},
	},
	{
		name:  "key_create/known",
		setup: func(*lostWorld) {},
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			return e.AdoptKey(w.ctx, operator, "admin", picket.Secret("pkk_default_"+strings.Repeat("A", 43)),
				[]picket.Scope{picket.ScopeAdmin})
		},
	},
	{
		name: "key_revoke",
		setup: func(w *lostWorld) {
			for _, key := range []string{"8", "9"} { // the last one could not be revoked
				k, err := w.direct.CreateKey(w.ctx, asked(key),
					picket.KeyRequest{Name: "ops", Scopes: []picket.Scope{picket.ScopeAdmin}})
				ok(w.t, err)
				w.key = k.KeyID
			}
		},
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) { return e.RevokeKey(w.ctx, operator, w.key) },
	},
}

func cancelTask(w *lostWorld, e *orchestrator.Engine) (any, error) {
	return e.Cancel(w.ctx, asked("1"), w.task.TaskID, "no need")
}

func retryTask(w *lostWorld, e *orchestrator.Engine) (any, error) {
	return e.Retry(w.ctx, asked("1"), w.task.TaskID, "try again")
}

// skip moves store time on at once, as a reaper that ticked would have.
func (w *lostWorld) skip(d time.Duration) {
	w.t.Helper()
	ok(w.t, w.raw.HIncrBy(w.ctx, meta, "now", d.Milliseconds()).Err())
}

const foundLess = "a repeat finds less to do"

var sweepCases = []lostCase{
	{name: "tick", again: "a tick says when somebody ticked last", setup: func(w *lostWorld) {
		w.submitted(picket.TaskSpec{NotBefore: picket.Instant(w.now.Milliseconds() + 60_000)})
		w.skip(time.Hour)
	}, call: tick},
	{name: "overdue", again: "a tick says when somebody ticked last", setup: func(w *lostWorld) {
		asking(w)
		w.skip(time.Hour)
	}, call: tick},
	{name: "expire_due", counts: foundLess, setup: func(w *lostWorld) {
		confirmed(flaky)(w)
		leased(picket.TaskSpec{})(w)
		w.skip(time.Hour)
	}, call: func(w *lostWorld, e *orchestrator.Engine) (any, error) { return e.ExpireDue(w.ctx, 100) }},
	// as if a hard pause had found more runs than a batch holds
	{name: "chore", counts: foundLess, setup: func(w *lostWorld) {
		confirmed(picket.TaskSpec{})(w)
		ok(w.t, w.raw.ZAdd(w.ctx, "pk:{default}:chores", redis.Z{Score: 1, Member: "pause"}).Err())
	}, call: func(w *lostWorld, e *orchestrator.Engine) (any, error) { return e.Chore(w.ctx, 100) }},
	{name: "inspect", counts: foundLess, setup: func(w *lostWorld) {
		confirmed(picket.TaskSpec{})(w)
		ok(w.t, w.raw.ZRem(w.ctx, "pk:{default}:deadlines", w.task.TaskID).Err())
	}, call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
		return e.Inspect(w.ctx, operator, picket.InspectRequest{Repair: true})
	}},
	{
		name:   "measure",
		counts: foundLess,
		setup:  confirmed(picket.TaskSpec{}),
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			return e.Measure(w.ctx, 1000)
		},
	},
	{name: "retain", counts: foundLess, setup: func(w *lostWorld) {
		w.submitted(picket.TaskSpec{Role: "coder", Labels: map[string]string{"team": "a"}})
		_, err := w.direct.Cancel(w.ctx, operator, w.task.TaskID, "")
		ok(w.t, err)
		w.skip(48 * time.Hour)
		w.submitted(picket.TaskSpec{})
	}, call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
		return e.Retain(w.ctx, picket.Retention{Tasks: time.Hour, Events: time.Hour}, 100)
	}},
}

// changed makes the namespace look as if it had been adopted on another server.
func changed(w *lostWorld) {
	w.t.Helper()
	ok(w.t, w.raw.HSet(w.ctx, meta, "identity", "another server", "floor", strconv.FormatInt(1<<52, 10)).Err())
}

const fused = "a report that has to reclaim first"

var adoptionCases = []lostCase{
	{
		name:   "adopt",
		alone:  "whoever makes a connection adopts the store first",
		unread: "whoever reads it adopts the store",
		setup:  changed,
		call:   func(w *lostWorld, e *orchestrator.Engine) (any, error) { return nil, orchestrator.Greet(w.ctx, e) },
	},
	{name: "reclaim", setup: voided,
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			r, err := e.Reclaim(w.ctx, w.held)
			r.LeaseTTLMs = 0 // computed now; leaseExpiresAt says the same
			return r, err
		}},
	{name: "reclaim/report", stages: fused, setup: voided, call: reportOnce},
	{name: "report/reclaimed", stages: fused, setup: voided, call: reportOnce},
}

// voided is a set-up with a lease from before an adoption.
func voided(w *lostWorld) {
	confirmed(picket.TaskSpec{})(w)
	changed(w)
	ok(w.t, orchestrator.Greet(w.ctx, w.direct))
}

func reportOnce(w *lostWorld, e *orchestrator.Engine) (any, error) {
	return e.Report(w.ctx, w.held, "r1", picket.Progress{Summary: "half way"})
}

func tick(w *lostWorld, e *orchestrator.Engine) (any, error) { return nil, e.Tick(w.ctx) }
