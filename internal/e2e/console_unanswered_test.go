//go:build linux

package e2e

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The store stands still while a person answers, as on a busy machine. After a second the page tells that it did not
// answer, and asks to repeat the request. The person reloads the page, and the answer counts once.
func TestConsoleAnswerWhileTheStoreStandsStill(t *testing.T) {
	s := newConsoleFixture(t, asWritten)
	task, handoff := s.ask("asker", "Copy the table")
	b := s.otherTab("/console/handoffs/" + handoff)
	b.fill("#answer", "because of the backup")
	store := s.w.storePID()
	if err := unix.Kill(store, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	moves := make(chan error, 1)
	go func() {
		moves <- b.becomes(waitLimit, `document.title.startsWith("Orchestrator unavailable")`)
		_ = unix.Kill(store, unix.SIGCONT)
	}()
	b.submits(`button[name=choice][value="1"]`, "[role=status]", "Answered.")
	if err := <-moves; err != nil {
		t.Errorf("the page does not tell that the store did not answer: %v", err)
	}
	got := s.w.task(task)
	if len(got.Answers) != 1 || got.Answers[0].Option == nil || *got.Answers[0].Option != "staging" ||
		!strings.Contains(string(got.Answers[0].Answer), "because of the backup") {
		t.Errorf("the answers are %+v", got.Answers)
	}
}
