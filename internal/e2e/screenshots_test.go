//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/picket-dev/picket"
)

// pages are the pages of a scene, by a name for their picture.
func (s *consoleFixture) pages() map[string]string {
	pages := map[string]string{
		"overview":          "/console/",
		"handoffs":          "/console/handoffs",
		"handoffs-answered": "/console/handoffs?state=answered",
		"reviews":           "/console/reviews",
		"review":            "/console/reviews/" + s.reviews[0],
		"tasks":             "/console/tasks",
		"tasks-leased":      "/console/tasks?state=leased",
		"tasks-none":        "/console/tasks?q=nothing-like-it",
		"task-new":          "/console/tasks/new",
		"task-running":      "/console/tasks/" + s.running,
		"task-queued":       "/console/tasks/" + s.queued,
		"task-closed":       "/console/tasks/" + s.closed,
		"task-subtask":      "/console/tasks/" + s.child,
		"task-log":          "/console/tasks/" + s.running + "/log",
		"agents":            "/console/agents",
		"endpoints":         "/console/endpoints",
		"agent":             "/console/agents/" + s.agent,
		"sessions":          "/console/sessions",
		"session":           s.session.path(),
		"policies":          "/console/policies",
		"policy":            "/console/policies/reviewer",
		"policy-new":        "/console/policies/nobody",
		"policy-history":    "/console/policies/reviewer/history",
		"leases":            "/console/leases",
		"budgets":           "/console/budgets",
		"budget":            "/console/budgets/" + s.running,
		"ledger":            "/console/ledger",
		"spending":          "/console/spending",
		"events":            "/console/events",
		"stop":              "/console/stop",
		"nowhere":           "/console/nowhere",
	}
	for kind, id := range s.handoffs {
		pages["handoff-"+string(kind)] = "/console/handoffs/" + id
	}
	return pages
}

// Pictures of every page, for people to look at: light, dark and narrow.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("PICKET_SCREENSHOTS")
	if dir == "" {
		t.Skip("make screenshots takes them")
	}
	s := newConsoleFixture(t, asWritten, endpointSettings)
	bare := newSerialTestEnv(t) // has no settings
	bare.up()
	empty := bare.browse(t)
	empty.signIn("/console/")
	for name, path := range map[string]string{
		"overview":  "/console/",
		"handoffs":  "/console/handoffs",
		"reviews":   "/console/reviews",
		"tasks":     "/console/tasks",
		"agents":    "/console/agents",
		"endpoints": "/console/endpoints",
		"sessions":  "/console/sessions",
		"policies":  "/console/policies",
		"leases":    "/console/leases",
		"budgets":   "/console/budgets",
		"spending":  "/console/spending",
	} {
		empty.open(path)
		empty.shoot(filepath.Join(dir, "empty-"+name+"-light.png"))
	}
	s.populate()
	s.leased("coder", "coder-2", "Import the ledger of 2019", func(t *picket.TaskSpec) {
		seconds := 1
		t.TimeoutSeconds = &seconds // nobody ends it, so the pages show it in red
	})
	for _, look := range []struct {
		name   string
		scheme string
		width  int64
	}{{"light", "light", 1280}, {"dark", "dark", 1280}, {"narrow", "light", 390}} {
		b := s.w.browse(t)
		b.forgive("status of 404")
		b.do(chromedp.EmulateViewport(look.width, 900))
		b.prefer("prefers-color-scheme", look.scheme)
		b.open("/console/login")
		b.shoot(filepath.Join(dir, "login-"+look.name+".png"))
		b.signIn("/console/")
		for name, path := range s.pages() {
			b.open(path)
			b.shoot(filepath.Join(dir, name+"-"+look.name+".png"))
		}
		b.open("/console/reviews")
		b.press("j", "j")
		b.press("?")
		b.sees("#help")
		b.shoot(filepath.Join(dir, "help-"+look.name+".png"))
	}
}

// TestReadmePicture takes the picture of the console that README.md shows.
func TestReadmePicture(t *testing.T) {
	path := os.Getenv("PICKET_README_PICTURE")
	if path == "" {
		t.Skip("make picture takes it")
	}
	s := newConsoleFixture(t, asWritten)
	s.populate()
	b := s.w.browse(t)
	b.do(chromedp.EmulateViewport(1360, 800))
	b.prefer("prefers-color-scheme", "light")
	b.signIn("/console/")
	b.open("/console/")
	b.shoot(path)
}

// prefer sets what the person's device says it prefers.
func (b *tab) prefer(feature, value string) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: feature, Value: value}},
		}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) shoot(path string) {
	b.t.Helper()
	b.until("a page at rest",
		`document.readyState === "complete" && document.querySelector("#live")?.dataset.state !== "joining"`)
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
