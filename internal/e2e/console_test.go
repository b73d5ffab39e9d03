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

	watching := together(visit{"ATaskAppears", aTaskAppears}, visit{"Log", liveLog}, visit{"Writing", writing},
		visit{"Unfolding", unfolding}, visit{"Pause", pauseUpdates})
	deciding := together(visit{"Answer", answerOnce}, visit{"Approve", approve}, visit{"Fix", rejectAndFix},
		visit{"TopUp", topUp}, visit{"Drain", drain})
	t.Run("Visits", func(t *testing.T) {
		for _, v := range []visit{
			{"Deciding", deciding}, {"DecidingPlain", plainly(deciding)}, {"Watching", watching}, {"Tabs", manyTabs},
			{"Keyboard", keyboard}, {"Gone", pageGone},
			{"SessionEnds", sessionEnds}, {"AnotherSignsIn", anotherSignsIn}, {"Door", theDoor},
			{"DoorPlain", plainly(theDoor)},
			{"WayOut", theWayOut}, {"WayOutPlain", plainly(theWayOut)},
		} {
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

// visit is what a person does.
type visit struct {
	name string
	do   func(*testing.T, *scene)
}

// together is one person who does one thing after another, in one tab.
func together(visits ...visit) func(*testing.T, *scene) {
	return func(t *testing.T, s *scene) {
		s.person = s.visitor("/console/")
		defer func() { s.person.t = t }()
		for _, v := range visits {
			t.Run(v.name, func(t *testing.T) { v.do(t, s.of(t)) })
		}
	}
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

// visitor is a person who has signed in, with scripts or without, and has a
// page open.
func (s *scene) visitor(path string) *tab {
	s.w.t.Helper()
	if s.person == nil {
		return s.stranger(path)
	}
	s.person.t, s.person.w = s.w.t, s.w
	s.person.open(path)
	return s.person
}

// stranger is another one than who was there before.
func (s *scene) stranger(path string) *tab {
	s.w.t.Helper()
	b := s.w.browse(s.w.t)
	if s.plain {
		b.withoutScripts()
	}
	b.signIn(path)
	return b
}

// A wrong key is told so.
func theDoor(t *testing.T, s *scene) {
	b := s.w.browse(t)
	b.forgive("status of 401")
	if s.plain {
		b.withoutScripts()
	}
	b.open("/console/tasks")
	b.at("/console/login")
	b.fill("#key", "pkk_default_wrong")
	b.press("Enter")
	b.reads("[role=alert]", "not valid")
}

// A person who signs in lands on the page that was asked for, and is out of
// everything when they sign out.
func theWayOut(t *testing.T, s *scene) {
	b := s.stranger("/console/tasks?state=queued")
	b.forgive("status of 401")
	b.at("/console/tasks?state=queued")
	b.click("header .menu summary")
	b.click("form[action='/console/logout'] button")
	b.at("/console/login")
	b.sees("#key")
	b.open("/console/leases")
	b.at("/console/login?next=%2Fconsole%2Fleases")
	b.sees("#key")
}
