//go:build linux

package e2e

import (
	"testing"
)

// People at the console, each in a browser of their own, at one server full of
// what agents have planted. Whatever they do, no planted script may run.
func TestConsole(t *testing.T) {
	s := newConsoleFixture(t, planted, endpointSettings)
	watcher := s.w.browse(t)
	watcher.signIn("/console/")
	watcher.live()
	s.populate()
	s.everyPageIsInert(t)
	watcher.reads("#waiting", "Which database is the one to copy from?") // what came while it was open

	watching := runParallel(consoleStep{"ATaskAppears", aTaskAppears}, consoleStep{"Log", liveLog},
		consoleStep{"Writing", writing},
		consoleStep{"Unfolding", unfolding}, consoleStep{"Pause", pauseUpdates}, consoleStep{"Talk", talk},
		consoleStep{"Messages", messages},
		consoleStep{"EditPolicy", editPolicy})
	deciding := runParallel(consoleStep{"Answer", answerOnce}, consoleStep{"Approve", approve},
		consoleStep{"Fix", rejectAndFix},
		consoleStep{"TopUp", topUp}, consoleStep{"Drain", drain})
	t.Run("Visits", func(t *testing.T) {
		for _, v := range []consoleStep{
			{"Deciding", deciding}, {"DecidingPlain", withoutJS(deciding)}, {"Watching", watching},
			{"Tabs", openManyTabs},
			{"Keyboard", keyboard}, {"Gone", pageGone},
			{"SessionEnds", sessionEnds}, {"AnotherSignsIn", anotherSignsIn}, {"Door", signInPage},
			{"DoorPlain", withoutJS(signInPage)},
			{"WayOut", signOut}, {"WayOutPlain", withoutJS(signOut)},
		} {
			t.Run(v.name, func(t *testing.T) {
				t.Parallel()
				v.do(t, s.of(t))
			})
		}
	})
	// These stop everybody.
	t.Run("Stop", func(t *testing.T) { stopButton(t, s.of(t)) })
	t.Run("StopPlain", func(t *testing.T) { withoutJS(stopButton)(t, s.of(t)) })
}

// consoleStep is what a person does.
type consoleStep struct {
	name string
	do   func(*testing.T, *consoleFixture)
}

// runParallel is one person who does one thing after another, in one tab.
func runParallel(visits ...consoleStep) func(*testing.T, *consoleFixture) {
	return func(t *testing.T, s *consoleFixture) {
		s.person = s.signedInTab("/console/")
		defer func() { s.person.t = t }()
		for _, v := range visits {
			t.Run(v.name, func(t *testing.T) { v.do(t, s.of(t)) })
		}
	}
}

// of is the same scene for a part of its test.
func (s *consoleFixture) of(t *testing.T) *consoleFixture {
	part := *s
	part.w = s.w.with(t)
	return &part
}

// withoutJS does the same without JavaScript.
func withoutJS(do func(*testing.T, *consoleFixture)) func(*testing.T, *consoleFixture) {
	return func(t *testing.T, s *consoleFixture) {
		s.plain = true
		do(t, s)
	}
}

// signedInTab is a person who has signed in, with scripts or without, and has a
// page open.
func (s *consoleFixture) signedInTab(path string) *tab {
	s.w.t.Helper()
	if s.person == nil {
		return s.otherTab(path)
	}
	s.person.t, s.person.w = s.w.t, s.w
	s.person.open(path)
	return s.person
}

// otherTab is another one than who was there before.
func (s *consoleFixture) otherTab(path string) *tab {
	s.w.t.Helper()
	b := s.w.browse(s.w.t)
	if s.plain {
		b.withoutScripts()
	}
	b.signIn(path)
	return b
}

// A wrong key is refused with a message.
func signInPage(t *testing.T, s *consoleFixture) {
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
func signOut(t *testing.T, s *consoleFixture) {
	b := s.otherTab("/console/tasks?state=queued")
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
