//go:build linux

package e2e

import (
	"testing"
)

// People at the console, each in a browser of their own, at one server full of
// what agents have planted. Whatever they do, no planted script may run.
func TestConsole(t *testing.T) {
	s := scenery(t, planted)
	watcher := s.w.browse(t)
	watcher.signIn("/console/")
	watcher.live()
	s.play()
	s.everyPageIsInert(t)
	watcher.reads("#waiting", "Which database is the one to copy from?") // what came while it was open

	visits := []struct {
		name string
		do   func(*testing.T, *scene)
	}{
		{"Door", theDoor}, {"SessionEnds", sessionEnds}, {"AnotherSignsIn", anotherSignsIn}, {"ATaskAppears", aTaskAppears}, {"Pause", pauseUpdates}, {"Keyboard", keyboard}, {"Writing", writing}, {"Log", liveLog}, {"Tabs", manyTabs},
		{"Answer", answerOnce}, {"Approve", approve}, {"Fix", rejectAndFix}, {"TopUp", topUp}, {"Drain", drain},
		{"AnswerPlain", plainly(answerOnce)}, {"ApprovePlain", plainly(approve)}, {"FixPlain", plainly(rejectAndFix)}, {"TopUpPlain", plainly(topUp)}, {"DrainPlain", plainly(drain)},
	}
	t.Run("Visits", func(t *testing.T) {
		for _, v := range visits {
			t.Run(v.name, func(t *testing.T) {
				t.Parallel()
				v.do(t, s.of(t))
			})
		}
	})
	// These stop everybody.
	t.Run("Stop", func(t *testing.T) { stopButton(t, s.of(t)) })
	t.Run("StopPlain", func(t *testing.T) { plainly(stopButton)(t, s.of(t)) })
}

// of is the same scene for a part of its test.
func (s *scene) of(t *testing.T) *scene {
	part := *s
	part.w = s.w.with(t)
	return &part
}

// plainly does the same without JavaScript.
func plainly(do func(*testing.T, *scene)) func(*testing.T, *scene) {
	return func(t *testing.T, s *scene) {
		s.plain = true
		do(t, s)
	}
}

// visitor is a person who has signed in, with scripts or without.
func (s *scene) visitor(path string) *tab {
	s.w.t.Helper()
	b := s.w.browse(s.w.t)
	if s.plain {
		b.withoutScripts()
	}
	b.signIn(path)
	return b
}

// A wrong key is told so, with scripts and without them.
func theDoor(t *testing.T, s *scene) {
	for _, scripts := range []bool{true, false} {
		b := s.w.browse(t)
		b.forgive("status of 401")
		if !scripts {
			b.withoutScripts()
		}
		b.open("/console/tasks")
		b.at("/console/login")
		b.fill("#key", "pkk_default_wrong")
		b.press("Enter")
		b.reads("[role=alert]", "not valid")
	}
}
