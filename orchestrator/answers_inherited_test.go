package orchestrator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// askAndAnswer takes the next task, asks, and has the question answered.
func (f *fixture) askAndAnswer(t *testing.T, question, answer string) {
	t.Helper()
	help, err := f.RequestHelp(f.Ctx, f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})),
		picket.HelpRequest{Question: question})
	kit.OK(t, err)
	_, err = f.Answer(f.Ctx, kit.Operator, help.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(answer)})
	kit.OK(t, err)
}

func answerTexts(answers []picket.Answer) string {
	var said []string
	for _, a := range answers {
		said = append(said, a.Question+" "+string(a.Answer))
	}
	return strings.Join(said, ", ")
}

// What people answered on a task is told to the runs of what it is made again
// as, from the first one on and however often, also when the task itself has
// been deleted.
func TestARetriedTaskKnowsItsAnswers(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		first := f.MustSubmit(t, picket.TaskSpec{}).TaskID
		f.askAndAnswer(t, "where", `"here"`)
		f.askAndAnswer(t, "when", `"now"`)
		second := f.CancelAndRetry(t, first)
		f.askAndAnswer(t, "how", `"so"`)
		third := f.CancelAndRetry(t, second)
		for id, want := range map[string]string{
			first:  `where "here", when "now"`,
			second: `where "here", when "now", how "so"`,
			third:  `where "here", when "now", how "so"`,
		} {
			got, err := f.Task(f.Ctx, id)
			kit.OK(t, err)
			if said := answerTexts(got.Answers); said != want {
				t.Errorf("%s knows %s, want %s", id, said, want)
			}
		}
		l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		if said := answerTexts(l.Answers); l.TaskID != third || l.Attempt != 1 ||
			said != `where "here", when "now", how "so"` {
			t.Errorf("run %d of %s was told %s", l.Attempt, l.TaskID, said)
		}
		f.RunReaperFor(t, time.Minute)
		_, err := f.ApplyRetention(f.Ctx, picket.Retention{Tasks: time.Second, Events: time.Hour, MaxEvents: 1e6}, 100)
		kit.OK(t, err)
		_, err = f.Task(f.Ctx, first)
		kit.Refused(t, err, picket.CodeNotFound)
		got, err := f.Task(f.Ctx, third)
		kit.OK(t, err)
		if said := answerTexts(got.Answers); len(got.Answers) != 3 {
			t.Errorf("with the others deleted %s knows %s", third, said)
		}
	})
}

// Answers that are too long to be told to a run are not handed down either.
func TestInheritedAnswersAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id := f.MustSubmit(t, picket.TaskSpec{}).TaskID
		for _, n := range []string{"1", "2", "3", "4", "5", "6"} {
			f.askAndAnswer(t, n, `"`+strings.Repeat("x", 250_000)+`"`)
		}
		var told []string
		for range 3 {
			id = f.CancelAndRetry(t, id)
			for _, a := range f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}).Answers {
				told = append(told, a.Question)
			}
		}
		if want := slices.Repeat([]string{"3", "4", "5", "6"}, 3); !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}
