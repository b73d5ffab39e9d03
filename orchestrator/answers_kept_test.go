package orchestrator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// asked takes the next task, asks, and has the question answered.
func (f *fixture) asked(t *testing.T, question, answer string) {
	t.Helper()
	help, err := f.RequestHelp(f.ctx, f.held(t, f.lease(t, picket.AcquireRequest{AgentID: "a1"})),
		picket.HelpRequest{Question: question})
	ok(t, err)
	_, err = f.Answer(f.ctx, operator, help.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(answer)})
	ok(t, err)
}

// anew cancels a task and makes it anew.
func (f *fixture) anew(t *testing.T, id string) string {
	t.Helper()
	_, err := f.Cancel(f.ctx, operator, id, "")
	ok(t, err)
	by := picket.Caller{Actor: "key_a", Once: picket.Once{Key: "anew " + id, Body: strings.Repeat("0", 64)}}
	first, err := f.Retry(f.ctx, by, id, "")
	ok(t, err)
	again, err := f.Retry(f.ctx, by, id, "") // its answer was lost
	ok(t, err)
	if first.TaskID == id || *first.Retries != id || again.TaskID != first.TaskID {
		t.Fatalf("%s was made anew as %s, then %s", id, first.TaskID, again.TaskID)
	}
	return first.TaskID
}

func saidIn(answers []picket.Answer) string {
	var said []string
	for _, a := range answers {
		said = append(said, a.Question+" "+string(a.Answer))
	}
	return strings.Join(said, ", ")
}

// What people answered on a task is told to the runs of what it is made anew
// as, from the first one on and however often, also when the task itself has
// been deleted.
func TestATaskMadeAnewKnowsWhatWasAnswered(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		first := f.submit(t, picket.TaskSpec{}).TaskID
		f.asked(t, "where", `"here"`)
		f.asked(t, "when", `"now"`)
		second := f.anew(t, first)
		f.asked(t, "how", `"so"`)
		third := f.anew(t, second)
		for id, want := range map[string]string{
			first:  `where "here", when "now"`,
			second: `where "here", when "now", how "so"`,
			third:  `where "here", when "now", how "so"`,
		} {
			got, err := f.Task(f.ctx, id)
			ok(t, err)
			if said := saidIn(got.Answers); said != want {
				t.Errorf("%s knows %s, want %s", id, said, want)
			}
		}
		l := f.lease(t, picket.AcquireRequest{AgentID: "a1"})
		if said := saidIn(l.Answers); l.TaskID != third || l.Attempt != 1 ||
			said != `where "here", when "now", how "so"` {
			t.Errorf("run %d of %s was told %s", l.Attempt, l.TaskID, said)
		}
		f.pass(t, time.Minute)
		_, err := f.Retain(f.ctx, picket.Retention{Tasks: time.Second, Events: time.Hour, MaxEvents: 1e6}, 100)
		ok(t, err)
		_, err = f.Task(f.ctx, first)
		refused(t, err, picket.CodeNotFound)
		got, err := f.Task(f.ctx, third)
		ok(t, err)
		if said := saidIn(got.Answers); len(got.Answers) != 3 {
			t.Errorf("with the others deleted %s knows %s", third, said)
		}
	})
}

// Answers that are too long to be told to a run are not handed down either.
func TestAnswersHandedDownAreBounded(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		id := f.submit(t, picket.TaskSpec{}).TaskID
		for _, n := range []string{"1", "2", "3", "4", "5", "6"} {
			f.asked(t, n, `"`+strings.Repeat("x", 250_000)+`"`)
		}
		var told []string
		for range 3 {
			id = f.anew(t, id)
			for _, a := range f.lease(t, picket.AcquireRequest{AgentID: "a1"}).Answers {
				told = append(told, a.Question)
			}
		}
		if want := slices.Repeat([]string{"3", "4", "5", "6"}, 3); !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}
