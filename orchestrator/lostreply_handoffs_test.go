package orchestrator_test

import (
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

// withHandoff is a set-up with one task that waits for a person.
func withHandoff(w *replyEnv) {
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
func withReview(w *replyEnv) {
	confirmed(picket.TaskSpec{})(w)
	_, err := w.direct.Complete(w.ctx, w.held, picket.Completion{Output: picket.RawJSON(`"done"`)})
	ok(w.t, err)
}

// withEscalation is a set-up with one task that was escalated.
func withEscalation(w *replyEnv) {
	confirmed(retriesOnCrash)(w)
	_, err := w.direct.Fail(w.ctx, w.held, "no way", false)
	ok(w.t, err)
}

var peopleCases = []replyCase{
	{name: "claim", setup: withHandoff,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Claim(w.ctx, asked("1"), w.handoff, false)
		}},
	{name: "answer", setup: withHandoff,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Answer(w.ctx, asked("1"), w.handoff, picket.AnswerRequest{Option: ptr("b")})
		}},
	{name: "answer/escalation", setup: func(w *replyEnv) {
		withEscalation(w)
		w.handoff = "handoff_" + strings.TrimPrefix(w.run, "run_")
	}, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		return e.Answer(w.ctx, asked("1"), w.handoff, picket.AnswerRequest{Answer: picket.RawJSON(`"try harder"`)})
	}},
	{name: "finish", setup: withHandoff,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Finish(w.ctx, asked("1"), w.handoff, picket.RawJSON(`{"by":"hand"}`))
		}},
	{name: "review", setup: withReview,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Approve(w.ctx, asked("1"), w.task.TaskID, picket.Decision{Note: "good"})
		}},
	{name: "review/reject", setup: withReview,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			task, fix, err := e.Reject(w.ctx, asked("1"), w.task.TaskID, picket.Decision{Note: "bad"}, nil)
			return []any{task, fix}, err
		}},
	{name: "bulk", setup: withThreeReviews, severalCalls: whySeveralCalls, call: approveThree},
	{name: "review/bulk", setup: withThreeReviews, severalCalls: whySeveralCalls, call: approveThree},
	{
		name:  "review/fix",
		setup: withReview,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			task, fix, err := e.Reject(w.ctx, asked("1"), w.task.TaskID, picket.Decision{Note: "bad"},
				&picket.TaskSpec{Title: "mend it", Role: "coder"})
			return []any{task, fix}, err
		},
	},
}

var operatorCases = []replyCase{
	{name: "cancel", setup: func(w *replyEnv) { w.submitted(picket.TaskSpec{}) }, call: cancelTask},
	{name: "cancel/leased", setup: confirmed(picket.TaskSpec{}), call: cancelTask},
	{name: "cancel/handoff", setup: withHandoff,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.CancelHandoff(w.ctx, asked("1"), w.handoff, "no need")
		}},
	{name: "retry", setup: withEscalation, call: retryTask},
	{name: "retry/closed", setup: func(w *replyEnv) {
		withHandoff(w)
		_, err := w.direct.Answer(w.ctx, operator, w.handoff, picket.AnswerRequest{Option: ptr("b")})
		ok(w.t, err)
		_, err = w.direct.Cancel(w.ctx, operator, w.task.TaskID, "")
		ok(w.t, err)
	}, call: retryTask},
	{name: "expire", setup: confirmed(retriesOnCrash),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Expire(w.ctx, asked("1"), w.task.TaskID, "it hangs")
		}},
	{name: "pause", setup: confirmed(picket.TaskSpec{}),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Pause(w.ctx, asked("1"), false, "lunch")
		}},
	{name: "pause/hard", setup: confirmed(picket.TaskSpec{}),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Pause(w.ctx, asked("1"), true, "fire")
		}},
	{name: "resume", setup: func(w *replyEnv) {
		_, err := w.direct.Pause(w.ctx, operator, true, "fire")
		ok(w.t, err)
	}, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		return e.Resume(w.ctx, asked("1"), "it is out")
	}},
	{
		name:  "key_create",
		setup: func(*replyEnv) {},
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.CreateKey(w.ctx, asked("1"),
				picket.KeyRequest{Name: "ci", Scopes: []picket.Scope{picket.ScopeAgent}})
		},
	},
	{
		name:  "key_create/known",
		setup: func(*replyEnv) {},
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.AdoptKey(w.ctx, operator, "admin", picket.Secret("pkk_default_"+strings.Repeat("A", 43)),
				[]picket.Scope{picket.ScopeAdmin})
		},
	},
	{
		name: "key_revoke",
		setup: func(w *replyEnv) {
			for _, key := range []string{"8", "9"} { // the last one could not be revoked
				k, err := w.direct.CreateKey(w.ctx, asked(key),
					picket.KeyRequest{Name: "ops", Scopes: []picket.Scope{picket.ScopeAdmin}})
				ok(w.t, err)
				w.key = k.KeyID
			}
		},
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) { return e.RevokeKey(w.ctx, operator, w.key) },
	},
}

func cancelTask(w *replyEnv, e *orchestrator.Engine) (any, error) {
	return e.Cancel(w.ctx, asked("1"), w.task.TaskID, "no need")
}

func retryTask(w *replyEnv, e *orchestrator.Engine) (any, error) {
	return e.Retry(w.ctx, asked("1"), w.task.TaskID, "try again")
}

// jumpStoreTime moves store time on at once, as a reaper that ticked would have.
func (w *replyEnv) jumpStoreTime(d time.Duration) {
	w.t.Helper()
	ok(w.t, w.raw.HIncrBy(w.ctx, meta, "now", d.Milliseconds()).Err())
}

const whyFewer = "a repeat finds less to do"

var sweepCases = []replyCase{
	{name: "tick", repeatCounts: "a tick says when somebody ticked last", setup: func(w *replyEnv) {
		w.submitted(picket.TaskSpec{NotBefore: picket.Instant(w.now.Milliseconds() + 60_000)})
		w.jumpStoreTime(time.Hour)
	}, call: tick},
	{name: "overdue", repeatCounts: "a tick says when somebody ticked last", setup: func(w *replyEnv) {
		withHandoff(w)
		w.jumpStoreTime(time.Hour)
	}, call: tick},
	{name: "expire_due", answerVaries: whyFewer, setup: func(w *replyEnv) {
		confirmed(retriesOnCrash)(w)
		leased(picket.TaskSpec{})(w)
		w.jumpStoreTime(time.Hour)
	}, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) { return e.ExpireDue(w.ctx, 100) }},
	// as if a hard pause had found more runs than a batch holds
	{name: "chore", answerVaries: whyFewer, setup: func(w *replyEnv) {
		confirmed(picket.TaskSpec{})(w)
		ok(w.t, w.raw.ZAdd(w.ctx, "pk:{default}:chores", redis.Z{Score: 1, Member: "pause"}).Err())
	}, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) { return e.RunChores(w.ctx, 100) }},
	{name: "inspect", answerVaries: whyFewer, setup: func(w *replyEnv) {
		confirmed(picket.TaskSpec{})(w)
		ok(w.t, w.raw.ZRem(w.ctx, "pk:{default}:deadlines", w.task.TaskID).Err())
	}, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		return e.Inspect(w.ctx, operator, picket.InspectRequest{Repair: true})
	}},
	{
		name:         "measure",
		answerVaries: whyFewer,
		setup:        confirmed(picket.TaskSpec{}),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.MeasureMemory(w.ctx, 1000)
		},
	},
	{name: "retain", answerVaries: whyFewer, setup: func(w *replyEnv) {
		w.submitted(picket.TaskSpec{Role: "coder", Labels: map[string]string{"team": "a"}})
		_, err := w.direct.Cancel(w.ctx, operator, w.task.TaskID, "")
		ok(w.t, err)
		w.jumpStoreTime(48 * time.Hour)
		w.submitted(picket.TaskSpec{})
	}, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		return e.ApplyRetention(w.ctx, picket.Retention{Tasks: time.Hour, Events: time.Hour}, 100)
	}},
}

// moveToAnotherServer makes the namespace look as if it had been adopted on another server.
func moveToAnotherServer(w *replyEnv) {
	w.t.Helper()
	ok(w.t, w.raw.HSet(w.ctx, meta, "identity", "another server", "floor", strconv.FormatInt(1<<52, 10)).Err())
}

const whyTwoCalls = "a report that has to reclaim first"

var adoptionCases = []replyCase{
	{
		name:         "adopt",
		noBackground: "anyone who makes a connection adopts the store first",
		noClockRead:  "anyone who reads it adopts the store",
		setup:        moveToAnotherServer,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return nil, orchestrator.EnsureAdopted(w.ctx, e)
		},
	},
	{name: "reclaim", setup: withVoidLease,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			r, err := e.Reclaim(w.ctx, w.held)
			r.LeaseTTLMs = 0 // computed now; leaseExpiresAt says the same
			return r, err
		}},
	{name: "reclaim/report", severalCalls: whyTwoCalls, setup: withVoidLease, call: reportOnce},
	{name: "report/reclaimed", severalCalls: whyTwoCalls, setup: withVoidLease, call: reportOnce},
}

// withVoidLease is a set-up with a lease from before an adoption.
func withVoidLease(w *replyEnv) {
	confirmed(picket.TaskSpec{})(w)
	moveToAnotherServer(w)
	ok(w.t, orchestrator.EnsureAdopted(w.ctx, w.direct))
}

func reportOnce(w *replyEnv, e *orchestrator.Engine) (any, error) {
	return e.Report(w.ctx, w.held, "r1", picket.Progress{Summary: "half way"})
}

func tick(w *replyEnv, e *orchestrator.Engine) (any, error) { return nil, e.Tick(w.ctx) }
