package taskfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
)

// Submitter submits the tasks of a file, in order, with as few requests as possible.
type Submitter struct {
	// KeyPrefix makes the idempotency keys of lines without one: the prefix, a slash and the number of the
	// line. A file that is submitted again with the same prefix submits nothing twice for 24 hours.
	KeyPrefix string
	// Create sends one request, as [client.Tasks.CreateMany] does. Required.
	Create func(ctx context.Context, tasks []picket.TaskSubmission) ([]client.TaskResult, error)
	// Submitted is told each task that was submitted, in order. An error ends the submission. Required.
	Submitted func(line int, result client.TaskResult) error
	// Refused is told each line that was refused, in order. Required.
	Refused func(line int, err error)
	// Progress is told the counts of long work, at most once in progressEvery. Required.
	Progress func(Counts)
}

// progressEvery is how long Submit is silent.
const progressEvery = 2 * time.Second

// Counts says how many lines were submitted and refused so far.
type Counts struct{ Submitted, Refused int }

// StoppedError reports that the lines from Line on were not all submitted, and why.
type StoppedError struct {
	Line int
	Err  error
}

// Error implements error.
func (e *StoppedError) Error() string { return fmt.Sprintf("stopped at line %d: %v", e.Line, e.Err) }

// Unwrap returns the reason.
func (e *StoppedError) Unwrap() error { return e.Err }

// Submit submits the tasks of a file. Refused lines do not end it. The error is a *StoppedError if it could not
// go on.
func (s Submitter) Submit(ctx context.Context, in io.Reader) (Counts, error) {
	r := newReader(in, s.KeyPrefix)
	var counts Counts
	told := time.Now()
	for {
		lines, unread := r.next()
		if err := s.submitLines(ctx, lines, &counts); err != nil {
			return counts, err
		}
		if unread != nil {
			return counts, &StoppedError{r.number, unread}
		}
		if len(lines) == 0 {
			return counts, nil
		}
		if time.Since(told) >= progressEvery {
			s.Progress(counts)
			told = time.Now()
		}
	}
}

// submitLines submits the lines that are tasks, and tells about all of them in order.
func (s Submitter) submitLines(ctx context.Context, lines []line, counts *Counts) error {
	var tasks []picket.TaskSubmission
	for _, l := range lines {
		if l.err == nil {
			tasks = append(tasks, l.task)
		}
	}
	var results []client.TaskResult
	var stop error
	if len(tasks) > 0 {
		results, stop = s.Create(ctx, tasks)
	}
	for _, l := range lines {
		if l.err != nil {
			counts.Refused++
			s.Refused(l.number, l.err)
			continue
		}
		if len(results) == 0 {
			return &StoppedError{l.number, stop}
		}
		result := results[0]
		results = results[1:]
		if result.Err != nil {
			counts.Refused++
			s.Refused(l.number, result.Err)
			continue
		}
		counts.Submitted++
		if err := s.Submitted(l.number, result); err != nil {
			return &StoppedError{l.number, err}
		}
	}
	return nil
}

// CheckKeyPrefix refuses a prefix from which no keys can be made.
func CheckKeyPrefix(prefix string) error {
	unprintable := func(c rune) bool { return c < ' ' || c > '~' }
	if prefix == "" || len(prefix) > MaxKeyPrefix || strings.ContainsFunc(prefix, unprintable) {
		return errors.New("it must have 1 to 200 printable ASCII characters")
	}
	return nil
}
