package taskfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
)

// recorder takes what a Submitter does, one word for each step.
type recorder struct {
	steps   []string
	answer  func(task picket.TaskSubmission) client.TaskResult // nil: it is submitted
	stopAt  string                                             // the title at which requests fail
	batches []int
	took    time.Duration // of a request
}

var errStop = errors.New("stop")

func (r *recorder) submit(ctx context.Context, in io.Reader) (Counts, error) {
	return Submitter{
		KeyPrefix: "p",
		Create: func(_ context.Context, tasks []picket.TaskSubmission) (results []client.TaskResult, err error) {
			r.batches = append(r.batches, len(tasks))
			time.Sleep(r.took)
			for _, task := range tasks {
				if task.Title == r.stopAt {
					return results, errStop
				}
				result := client.TaskResult{Task: picket.Task{Title: task.Title, TaskID: *task.IdempotencyKey}}
				if r.answer != nil {
					result = r.answer(task)
				}
				results = append(results, result)
			}
			return results, nil
		},
		Submitted: func(line int, result client.TaskResult) error {
			r.steps = append(r.steps, fmt.Sprintf("%d=%s,%s", line, result.Task.Title, result.Task.TaskID))
			return nil
		},
		Refused: func(line int, err error) {
			r.steps = append(r.steps, fmt.Sprintf("%d!%s", line, picket.CodeOf(err)))
		},
		Progress: func(c Counts) { r.steps = append(r.steps, fmt.Sprintf("%d+%d", c.Submitted, c.Refused)) },
	}.Submit(ctx, in)
}

func (r *recorder) want(t *testing.T, steps string) {
	t.Helper()
	if got := strings.Join(r.steps, " "); got != steps {
		t.Errorf("the steps are\n%s, want\n%s", got, steps)
	}
}

// Lines keep their numbers and their order, whatever stands between them.
func TestLinesAreToldInOrder(t *testing.T) {
	r := &recorder{}
	counts, err := r.submit(t.Context(), strings.NewReader("{\"title\":\"a\"}\r\n\n  \n"+
		`{"title":"b","idempotencyKey":"mine"}`+"\n[]\n{\"titel\":\"c\"}\n"+`{"title":"d","title":"e"}`+"\n\xff\n"+
		`{"title":"`+strings.Repeat("x", maxLine)+`"}`+"\n"+`{"title":"f"}`))
	if err != nil || counts != (Counts{3, 5}) {
		t.Errorf("%+v, %v", counts, err)
	}
	r.want(t, "1=a,p/1 4=b,mine 5!validation_failed 6!validation_failed 7!validation_failed 8!validation_failed "+
		"9!too_large 10=f,p/10")
}

func TestFilesWithoutTasks(t *testing.T) {
	for _, text := range []string{"", "\n", "\r\n \n\n"} {
		r := &recorder{}
		if counts, err := r.submit(t.Context(), strings.NewReader(text)); err != nil || counts != (Counts{}) ||
			len(r.batches) != 0 {
			t.Errorf("%q: %+v, %v", text, counts, err)
		}
	}
}

func TestALongFileTakesSeveralRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{took: time.Second}
		counts, err := r.submit(t.Context(), strings.NewReader(strings.Repeat("{\"title\":\"a\"}\n", 2100)))
		if err != nil || counts != (Counts{2100, 0}) || fmt.Sprint(r.batches) != "[500 500 500 500 100]" {
			t.Errorf("%+v, %v, %v", counts, err, r.batches)
		}
		var progress []string
		for _, step := range r.steps {
			if strings.Contains(step, "+") {
				progress = append(progress, step)
			}
		}
		if fmt.Sprint(progress) != "[1000+0 2000+0]" {
			t.Errorf("progress is told as %v", progress)
		}
	})
	r := &recorder{}
	long := `{"title":"a","input":"` + strings.Repeat("x", 200_000) + "\"}\n"
	if _, err := r.submit(t.Context(), strings.NewReader(strings.Repeat(long, 60))); err != nil || len(r.batches) != 2 {
		t.Errorf("long lines: %v, %v", err, r.batches)
	}
}

// What is told before a stop is done; the stop names the first line that is not.
func TestAStopNamesItsLine(t *testing.T) {
	const text = "{\"title\":\"a\"}\n[]\n{\"title\":\"b\"}\n[]\n{\"title\":\"c\"}\n"
	r := &recorder{stopAt: "b"}
	counts, err := r.submit(t.Context(), strings.NewReader(text))
	var stopped *StoppedError
	if !errors.As(err, &stopped) || stopped.Line != 3 || !errors.Is(err, errStop) || counts != (Counts{1, 1}) {
		t.Errorf("%+v, %v", counts, err)
	}
	r.want(t, "1=a,p/1 2!validation_failed")

	r = &recorder{}
	counts, err = r.submit(t.Context(), io.MultiReader(strings.NewReader(text), iotest.ErrReader(io.ErrClosedPipe)))
	if !errors.As(err, &stopped) || stopped.Line != 6 || !errors.Is(err, io.ErrClosedPipe) || counts != (Counts{3, 2}) {
		t.Errorf("a file that cannot be read to its end: %+v, %v", counts, err)
	}
}

func TestRefusedTasksAreTold(t *testing.T) {
	r := &recorder{answer: func(task picket.TaskSubmission) client.TaskResult {
		if task.Title == "a" {
			return client.TaskResult{Err: picket.CodeBudgetExceeded}
		}
		return client.TaskResult{Task: picket.Task{Title: task.Title}}
	}}
	counts, err := r.submit(t.Context(), strings.NewReader("{\"title\":\"a\"}\n{\"title\":\"b\"}\n"))
	if err != nil || counts != (Counts{1, 1}) {
		t.Errorf("%+v, %v", counts, err)
	}
	r.want(t, "1!budget_exceeded 2=b,")
}

func TestKeyPrefixes(t *testing.T) {
	for prefix, good := range map[string]bool{"a": true, strings.Repeat("a", MaxKeyPrefix): true, "": false,
		strings.Repeat("a", MaxKeyPrefix+1): false, "ü": false, "a\nb": false} {
		if err := CheckKeyPrefix(prefix); (err == nil) != good {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}
