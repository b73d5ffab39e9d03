package orchestrator_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

const raceRounds = 50

// decisionCase is what one of two people decides.
type decisionCase struct {
	decision string
	said     string
	act      func(e *orchestrator.Engine, by picket.Caller, id string) error
}

// raceTwo has two people act on one thing at the same time, each in a process of
// their own, and tells who has won.
func raceTwo(t *testing.T, procs [2]*orchestrator.Engine, who [2]picket.Caller,
	acts [2]func(e *orchestrator.Engine, by picket.Caller) error) (winner int, lost error) {
	t.Helper()
	var errs [2]error
	var both, start sync.WaitGroup
	start.Add(1)
	for i := range 2 {
		both.Go(func() {
			start.Wait()
			errs[i] = acts[i](procs[i], who[i])
		})
	}
	start.Done()
	both.Wait()
	switch {
	case errs[0] == nil && errs[1] == nil:
		t.Fatal("both have won")
	case errs[0] != nil && errs[1] != nil:
		t.Fatalf("both have lost: %v; %v", errs[0], errs[1])
	case errs[0] == nil:
		return 0, errs[1]
	}
	return 1, errs[0]
}

// twoReviewerProcesses are two people with keys and processes of their own.
func (f *fixture) twoReviewerProcesses(t *testing.T) (procs [2]*orchestrator.Engine, who [2]picket.Caller) {
	t.Helper()
	ada, ben := f.twoReviewers(t)
	return [2]*orchestrator.Engine{f.Engine, f.OpenProcess(t, f.RigStore, orchestrator.Config{}).Engine("default")},
		[2]picket.Caller{ada, ben}
}

// raceDecisions races every choice against every choice, and itself, until
// there were enough rounds. It returns how often each of the two has won.
func (f *fixture) raceDecisions(t *testing.T, open func() string, choices []decisionCase,
	after func(id string, won decisionCase, by string)) (wins [2]int) {
	t.Helper()
	procs, who := f.twoReviewerProcesses(t)
	seed := rig.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for n := range raceRounds {
		id := open()
		pair := [2]decisionCase{choices[n%len(choices)], choices[rnd.IntN(len(choices))]}
		var acts [2]func(e *orchestrator.Engine, by picket.Caller) error
		for i, c := range pair {
			acts[i] = func(e *orchestrator.Engine, by picket.Caller) error { return c.act(e, by, id) }
		}
		w, err := raceTwo(t, procs, who, acts)
		wins[w]++
		won := pair[w]
		wantLostDecision(t, "round of seed "+fmt.Sprint(seed)+": "+pair[1-w].decision+" after "+won.decision, err,
			picket.CodeOf(err), who[w].Actor, won.decision, won.said)
		after(id, won, who[w].Actor)
	}
	return wins
}

func TestTwoPeopleDecideOneHandoff(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		choices := []decisionCase{
			{"answer", "use red", func(e *orchestrator.Engine, by picket.Caller, id string) error {
				_, err := e.Answer(f.Ctx, by, id, picket.AnswerRequest{Answer: picket.RawJSON(`"use red"`)})
				return err
			}},
			{"answer", "edited the input", func(e *orchestrator.Engine, by picket.Caller, id string) error {
				_, err := e.Answer(f.Ctx, by, id, picket.AnswerRequest{Input: picket.RawJSON(`"red"`)})
				return err
			}},
			{"finish", "done by hand", func(e *orchestrator.Engine, by picket.Caller, id string) error {
				_, err := e.Finish(f.Ctx, by, id, picket.RawJSON(`"done by hand"`))
				return err
			}},
			{"cancel", "not needed", func(e *orchestrator.Engine, by picket.Caller, id string) error {
				_, err := e.CancelHandoff(f.Ctx, by, id, "not needed")
				return err
			}},
		}
		became := map[string]picket.TaskState{
			"answer": picket.TaskQueued,
			"finish": picket.TaskCompleted,
			"cancel": picket.TaskCancelled,
		}
		wins := f.raceDecisions(t, func() string { return f.OpenHandoffs(t, 1)[0] }, choices,
			func(id string, won decisionCase, by string) {
				h, err := f.Handoff(f.Ctx, id)
				kit.OK(t, err)
				task := f.WantState(t, h.TaskID, became[won.decision])
				if won.decision == "answer" && (len(task.Answers) != 1 || task.Answers[0].By != by) {
					t.Errorf("answers %+v, want one by %s", task.Answers, by)
				}
				f.CancelAll(t)
			})
		t.Logf("hand-offs: %d rounds, won %v", raceRounds, wins)
	})
}

func TestTwoPeopleDecideOneReview(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		fix := func(id string) *picket.TaskSpec {
			return &picket.TaskSpec{Title: "mend it", Role: "mender", Labels: map[string]string{"of": id}}
		}
		choices := []decisionCase{
			{"approve", "well done", func(e *orchestrator.Engine, by picket.Caller, id string) error {
				_, err := e.Approve(f.Ctx, by, id, picket.Decision{Note: "well done"})
				return err
			}},
			{"reject", "too red", func(e *orchestrator.Engine, by picket.Caller, id string) error {
				_, made, err := e.Reject(f.Ctx, by, id, picket.Decision{Note: "too red"}, fix(id))
				if err == nil && made == "" {
					return errors.New("rejected without the fix")
				}
				return err
			}},
		}
		wins := f.raceDecisions(t, func() string { return f.CompleteTasks(t, 1, picket.TaskSpec{})[0] }, choices,
			func(id string, won decisionCase, by string) {
				task, err := f.Task(f.Ctx, id)
				kit.OK(t, err)
				made, err := f.Tasks(f.Ctx, picket.TaskQuery{Labels: map[string]string{"of": id}})
				kit.OK(t, err)
				want := 0
				if won.decision == "reject" {
					want = 1
				}
				if r := task.Review; *r.Decision != won.decision || r.By != by || len(made.Tasks) != want ||
					want == 1 && *r.FixTaskID != made.Tasks[0].TaskID {
					t.Errorf("review %+v with %d fixes", r, len(made.Tasks))
				}
			})
		t.Logf("reviews: %d rounds, won %v", raceRounds, wins)
	})
}

func TestTwoPeopleClaimOneHandoff(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		procs, who := f.twoReviewerProcesses(t)
		for range raceRounds {
			hid := f.OpenHandoffs(t, 1)[0]
			claim := func(e *orchestrator.Engine, by picket.Caller) error {
				_, err := e.Claim(f.Ctx, by, hid, picket.ClaimRequest{})
				return err
			}
			w, err := raceTwo(t, procs, who, [2]func(e *orchestrator.Engine, by picket.Caller) error{claim, claim})
			var no *picket.Error
			if !errors.As(err, &no) || no.Code != picket.CodeStateConflict || no.Facts["state"] != "claimed" ||
				no.Facts["by"] != who[w].Actor || no.Facts["at"] == nil {
				t.Fatalf("the loser is told %v", err)
			}
			h, err := f.Handoff(f.Ctx, hid)
			kit.OK(t, err)
			if h.ClaimedBy != who[w].Actor {
				t.Fatalf("claimed by %s, won by %s", h.ClaimedBy, who[w].Actor)
			}
		}
	})
}

// Two people approve the same many, one of them repeats the request as after a
// lost reply: each task is decided once, and is on one list only.
func TestTwoPeopleApproveTheSameMany(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		procs, who := f.twoReviewerProcesses(t)
		for round := range raceRounds / 5 {
			label := map[string]string{"round": fmt.Sprint(round)}
			ids := f.CompleteTasks(t, 5, picket.TaskSpec{Labels: label})
			req := picket.BulkApproval{Filter: picket.ReviewFilter{Labels: label}, Count: 5}
			var got [3]picket.BulkApproved
			var errs [3]error
			var all sync.WaitGroup
			for i := range 3 {
				by := who[i/2] // the first asks twice
				by.Idempotency = picket.Idempotency{
					Key:  strings.Repeat(string("ab"[i/2]), 60) + fmt.Sprint(1000+round),
					Body: strings.Repeat("b", 64),
				}
				all.Go(func() { got[i], errs[i] = procs[i/2].ApproveAll(f.Ctx, by, req) })
			}
			all.Wait()
			var approved []string
			for i, err := range errs {
				// Anyone who looks when some are decided already is told another number.
				if err != nil && picket.CodeOf(err) != picket.CodeVersion {
					t.Fatal(err)
				}
				for _, lost := range got[i].Lost {
					if lost.By == "" || lost.Code != picket.CodeTaskClosed {
						t.Errorf("lost %+v", lost)
					}
				}
				if i != 1 {
					approved = append(approved, got[i].Approved...)
				}
			}
			if errs[0] == nil && errs[1] == nil && !slices.Equal(got[0].Approved, got[1].Approved) {
				t.Errorf("the same request approved %v and %v", got[0], got[1])
			}
			if errs[0] != nil {
				approved = append(approved, got[1].Approved...)
			}
			slices.Sort(approved)
			slices.Sort(ids)
			if !slices.Equal(approved, ids) {
				t.Fatalf("approved %v, in review were %v", approved, ids)
			}
		}
		if n := f.countEvents(t, picket.EventTaskApproved); n != raceRounds {
			t.Errorf("%d decisions are told", n)
		}
	})
}
