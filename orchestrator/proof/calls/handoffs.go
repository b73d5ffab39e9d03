package calls

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// WithHandoff is a set-up with one task that waits for a person.
func WithHandoff(w *Env) {
	Confirmed(picket.TaskSpec{})(w)
	_, err := w.Direct.Report(w.Ctx, w.Held, "r0", picket.Progress{Summary: "so far"})
	kit.OK(w.T, err)
	h, err := w.Direct.RequestHelp(w.Ctx, w.Held,
		picket.HelpRequest{
			Question:        "which one?",
			Options:         []string{"a", "b"},
			DeadlineSeconds: kit.Ptr(60),
			OnDeadline:      picket.OnDeadlineEscalate,
		})
	kit.OK(w.T, err)
	w.handoff = h.HandoffID
}

// reviewed is a set-up with one task that waits for its review.
func withReview(w *Env) {
	Confirmed(picket.TaskSpec{})(w)
	_, err := w.Direct.Complete(w.Ctx, w.Held, picket.Completion{Output: picket.RawJSON(`"done"`)})
	kit.OK(w.T, err)
}

// withEscalation is a set-up with one task that was escalated.
func withEscalation(w *Env) {
	Confirmed(retriesOnCrash)(w)
	_, err := w.Direct.Fail(w.Ctx, w.Held, "no way", false)
	kit.OK(w.T, err)
}

var peopleCases = []Case{
	{Name: "claim", Setup: WithHandoff,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Claim(w.Ctx, Asked("1"), w.handoff, picket.ClaimRequest{})
		}},
	{Name: "answer", Setup: WithHandoff,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Answer(w.Ctx, Asked("1"), w.handoff, picket.AnswerRequest{Option: kit.Ptr("b")})
		}},
	{Name: "answer/escalation", Setup: func(w *Env) {
		withEscalation(w)
		w.handoff = "handoff_" + strings.TrimPrefix(w.run, "run_")
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.Answer(w.Ctx, Asked("1"), w.handoff, picket.AnswerRequest{Answer: picket.RawJSON(`"try harder"`)})
	}},
	{Name: "finish", Setup: WithHandoff,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Finish(w.Ctx, Asked("1"), w.handoff, picket.RawJSON(`{"by":"hand"}`))
		}},
	{Name: "review", Setup: withReview,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Approve(w.Ctx, Asked("1"), w.Task.TaskID, picket.Decision{Note: "good"})
		}},
	{Name: "review/reject", Setup: withReview,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			task, fix, err := e.Reject(w.Ctx, Asked("1"), w.Task.TaskID, picket.Decision{Note: "bad"}, nil)
			return []any{task, fix}, err
		}},
	{Name: "bulk", Setup: withThreeReviews, SeveralCalls: whySeveralCalls, Call: approveThree},
	{Name: "review/bulk", Setup: withThreeReviews, SeveralCalls: whySeveralCalls, Call: approveThree},
	{
		Name:  "review/fix",
		Setup: withReview,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			task, fix, err := e.Reject(w.Ctx, Asked("1"), w.Task.TaskID, picket.Decision{Note: "bad"},
				&picket.TaskSpec{Title: "mend it", Role: "coder"})
			return []any{task, fix}, err
		},
	},
}

var operatorCases = []Case{
	{Name: "cancel", Setup: func(w *Env) { w.Submitted(picket.TaskSpec{}) }, Call: cancelTask},
	{Name: "cancel/leased", Setup: Confirmed(picket.TaskSpec{}), Call: cancelTask},
	{Name: "cancel/handoff", Setup: WithHandoff,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.CancelHandoff(w.Ctx, Asked("1"), w.handoff, "no need")
		}},
	{Name: "retry", Setup: withEscalation, Call: retryTask},
	{Name: "retry/closed", Setup: func(w *Env) {
		WithHandoff(w)
		_, err := w.Direct.Answer(w.Ctx, kit.Operator, w.handoff, picket.AnswerRequest{Option: kit.Ptr("b")})
		kit.OK(w.T, err)
		_, err = w.Direct.Cancel(w.Ctx, kit.Operator, w.Task.TaskID, "")
		kit.OK(w.T, err)
	}, Call: retryTask},
	{Name: "expire", Setup: Confirmed(retriesOnCrash),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Expire(w.Ctx, Asked("1"), w.Task.TaskID, "it hangs")
		}},
	{Name: "pause", Setup: Confirmed(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Pause(w.Ctx, Asked("1"), false, "lunch")
		}},
	{Name: "pause/hard", Setup: Confirmed(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Pause(w.Ctx, Asked("1"), true, "fire")
		}},
	{Name: "resume", Setup: func(w *Env) {
		_, err := w.Direct.Pause(w.Ctx, kit.Operator, true, "fire")
		kit.OK(w.T, err)
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.Resume(w.Ctx, Asked("1"), "it is out")
	}},
	{
		Name:  "key_create",
		Setup: func(*Env) {},
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.CreateKey(w.Ctx, Asked("1"),
				picket.KeyRequest{Name: "ci", Scopes: []picket.Scope{picket.ScopeAgent}})
		},
	},
	{
		Name:  "key_create/client",
		Setup: func(*Env) {},
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.CreateKey(w.Ctx, Asked("1"),
				picket.KeyRequest{
					Name:   "partner",
					Scopes: []picket.Scope{picket.ScopeClient},
					Client: &picket.ClientLimits{Roles: []string{"builder"}},
				})
		},
	},
	{
		Name:  "key_create/known",
		Setup: func(*Env) {},
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.AdoptKey(w.Ctx, kit.Operator, "admin", picket.Secret("pkk_default_"+strings.Repeat("A", 43)),
				[]picket.Scope{picket.ScopeAdmin})
		},
	},
	{
		Name: "key_revoke",
		Setup: func(w *Env) {
			for _, key := range []string{"8", "9"} { // the last one could not be revoked
				k, err := w.Direct.CreateKey(w.Ctx, Asked(key),
					picket.KeyRequest{Name: "ops", Scopes: []picket.Scope{picket.ScopeAdmin}})
				kit.OK(w.T, err)
				w.key = k.KeyID
			}
		},
		Call: func(w *Env, e *orchestrator.Engine) (any, error) { return e.RevokeKey(w.Ctx, kit.Operator, w.key) },
	},
}

func cancelTask(w *Env, e *orchestrator.Engine) (any, error) {
	return e.Cancel(w.Ctx, Asked("1"), w.Task.TaskID, "no need")
}

func retryTask(w *Env, e *orchestrator.Engine) (any, error) {
	return e.Retry(w.Ctx, Asked("1"), w.Task.TaskID, "try again")
}

// JumpStoreTime moves store time on at once, as a reaper that ticked would have.
func (w *Env) JumpStoreTime(d time.Duration) {
	w.T.Helper()
	kit.OK(w.T, w.Raw.HIncrBy(w.Ctx, kit.Meta, "now", d.Milliseconds()).Err())
}

const whyFewer = "a repeat finds less to do"

var sweepCases = []Case{
	{Name: "tick", RepeatCounts: "a tick says when somebody ticked last", Setup: func(w *Env) {
		w.Submitted(picket.TaskSpec{NotBefore: picket.Instant(w.now.Milliseconds() + 60_000)})
		w.JumpStoreTime(time.Hour)
	}, Call: tick},
	{Name: "overdue", RepeatCounts: "a tick says when somebody ticked last", Setup: func(w *Env) {
		WithHandoff(w)
		w.JumpStoreTime(time.Hour)
	}, Call: tick},
	{Name: "expire_due", AnswerVaries: whyFewer, Setup: func(w *Env) {
		Confirmed(retriesOnCrash)(w)
		leased(picket.TaskSpec{})(w)
		w.JumpStoreTime(time.Hour)
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) { return e.ExpireDue(w.Ctx, 100) }},
	// as if a hard pause had found more runs than a batch holds
	{Name: "chore", AnswerVaries: whyFewer, Setup: func(w *Env) {
		Confirmed(picket.TaskSpec{})(w)
		kit.OK(w.T, w.Raw.ZAdd(w.Ctx, "pk:{default}:chores", redis.Z{Score: 1, Member: "pause"}).Err())
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) { return e.RunChores(w.Ctx, 100) }},
	{Name: "inspect", AnswerVaries: whyFewer, Setup: func(w *Env) {
		Confirmed(picket.TaskSpec{})(w)
		kit.OK(w.T, w.Raw.ZRem(w.Ctx, "pk:{default}:deadlines", w.Task.TaskID).Err())
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.Inspect(w.Ctx, kit.Operator, picket.InspectRequest{Repair: true})
	}},
	{
		Name:         "measure",
		AnswerVaries: whyFewer,
		Setup:        Confirmed(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.MeasureMemory(w.Ctx, 1000)
		},
	},
	{Name: "trace_advance", AnswerVaries: whyFewer, Setup: func(w *Env) {
		w.Submitted(picket.TaskSpec{})
		kit.OK(w.T, w.Raw.HSet(w.Ctx, "pk:{default}:meta", "traced", "1").Err())
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) { return e.AdvanceTraces(w.Ctx, 1, 2) }},
	{Name: "count", AnswerVaries: whyFewer, Setup: func(w *Env) {
		Confirmed(picket.TaskSpec{})(w)
		_, err := w.Direct.Fail(w.Ctx, w.Held, "it broke", false)
		kit.OK(w.T, err)
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) { return e.CountEnded(w.Ctx, 100) }},
	{Name: "count_spending", Setup: func(w *Env) {
		endedAs(picket.CallUncertain)(w)
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) { return e.CountSpending(w.Ctx) }},
	{Name: "remind", AnswerVaries: whyFewer, Setup: func(w *Env) {
		WithHandoff(w)
		kit.OK(w.T, w.Raw.ZIncrBy(w.Ctx, "pk:{default}:handoffs:open", -3.6e6, w.handoff).Err())
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.RemindPeople(w.Ctx, []picket.ReminderRule{{Name: "day", After: time.Minute}}, 100)
	}},
	{Name: "retain", AnswerVaries: whyFewer, SeveralCalls: "it counts what was spent first", Setup: func(w *Env) {
		w.Submitted(picket.TaskSpec{Role: "coder", Labels: map[string]string{"team": "a"}})
		_, err := w.Direct.Cancel(w.Ctx, kit.Operator, w.Task.TaskID, "")
		kit.OK(w.T, err)
		w.JumpStoreTime(48 * time.Hour)
		w.Submitted(picket.TaskSpec{})
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.ApplyRetention(w.Ctx, picket.Retention{Tasks: time.Hour, Events: time.Hour}, 100)
	}},
}

// moveToAnotherServer makes the namespace look as if it had been adopted on another server.
func moveToAnotherServer(w *Env) {
	w.T.Helper()
	kit.OK(w.T, w.Raw.HSet(w.Ctx, kit.Meta, "identity", "another server", "floor", strconv.FormatInt(1<<52, 10)).Err())
}

const whyTwoCalls = "a report that has to reclaim first"

var adoptionCases = []Case{
	{
		Name:         "adopt",
		NoBackground: "anyone who makes a connection adopts the store first",
		noClockRead:  "anyone who reads it adopts the store",
		Setup:        moveToAnotherServer,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return nil, kit.EnsureAdopted(w.Ctx, e)
		},
	},
	{
		Name:           "mark_stop",
		NoBackground:   "anyone who makes a connection adopts the store first",
		noClockRead:    "anyone who reads it adopts the store",
		OtherWhenMoved: "a store that nobody has adopted is not marked",
		Setup:          Confirmed(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return nil, doneBefore(w, kit.MarkStop(w.Ctx, e, 0, 0, "m1"), true)
		},
	},
	{
		Name:         "take_mark",
		NoBackground: "anyone who makes a connection adopts the store first",
		noClockRead:  "it would write store time",
		Setup: func(w *Env) {
			Confirmed(picket.TaskSpec{})(w)
			kit.OK(w.T, kit.MarkStop(w.Ctx, w.Direct, 0, 0, "m1"))
		},
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return nil, doneBefore(w, kit.TakeMark(w.Ctx, e, 0, "m1"), false)
		},
	},
	{
		Name:         "migrate",
		NoBackground: "anyone who makes a connection converts the store first",
		noClockRead:  "a store that is not converted is not read",
		Setup: func(w *Env) {
			Confirmed(picket.TaskSpec{})(w)
			_, err := kit.ToFormat1(w.Ctx, w.Raw, "default")
			kit.OK(w.T, err)
		},
		Call: func(w *Env, e *orchestrator.Engine) (any, error) { return kit.Migrate(w.Ctx, e, 10_000, 1000) },
	},
	{Name: "reclaim", Setup: withVoidLease,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			r, err := e.Reclaim(w.Ctx, w.Held)
			r.LeaseTTLMs = 0 // computed now; leaseExpiresAt says the same
			return r, err
		}},
	{Name: "reclaim/report", SeveralCalls: whyTwoCalls, Setup: withVoidLease, Call: reportOnce},
	{Name: "report/reclaimed", SeveralCalls: whyTwoCalls, Setup: withVoidLease, Call: reportOnce},
}

// doneBefore takes a definite refusal of a repeat for what it is, if the store shows that the
// first call had its effect.
func doneBefore(w *Env, err error, stopped bool) error {
	if picket.CodeOf(err) != picket.CodeUnavailable || errors.Is(err, picket.ErrUnknown) {
		return err
	}
	identity, lookup := w.Raw.HGet(w.Ctx, kit.Meta, "identity").Result()
	if lookup == nil && (identity == "stopped m1") == stopped {
		return nil
	}
	return err
}

// withVoidLease is a set-up with a lease from before an adoption.
func withVoidLease(w *Env) {
	Confirmed(picket.TaskSpec{})(w)
	moveToAnotherServer(w)
	kit.OK(w.T, kit.EnsureAdopted(w.Ctx, w.Direct))
}

func reportOnce(w *Env, e *orchestrator.Engine) (any, error) {
	return e.Report(w.Ctx, w.Held, "r1", picket.Progress{Summary: "half way"})
}

func tick(w *Env, e *orchestrator.Engine) (any, error) { return nil, e.Tick(w.Ctx) }
