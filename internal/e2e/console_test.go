//go:build linux

package e2e

import (
	"testing"
)

// People at the console, each in a browser of their own, at one server.
func TestConsole(t *testing.T) {
	w := newWorld(t)
	w.up()
	for name, visit := range map[string]func(*testing.T, *world){
		"Door": theDoor,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			visit(t, w.with(t))
		})
	}
}

// A wrong key is told so, with scripts and without them.
func theDoor(t *testing.T, w *world) {
	for _, scripts := range []bool{true, false} {
		b := w.browse(t)
		b.forgive("status of 401")
		if !scripts {
			b.withoutScripts()
		}
		b.open("/console/")
		b.at("/console/login")
		b.fill("#key", "pkk_default_wrong")
		b.press("Enter")
		b.reads("[role=alert]", "not valid")
	}
}
