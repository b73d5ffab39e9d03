//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// chromium is one headless browser for all tests of a run. Each tab has cookies
// and storage of its own, as if it were another person's.
var chromium struct {
	once sync.Once
	ctx  context.Context
	stop func()
	err  error
}

var errNoBrowser = errors.New("no Chromium is installed: as root, make test installs it on Debian; else put chromium or google-chrome on PATH")

// browserPath is the first browser of these that is there.
func browserPath() (string, error) {
	for _, name := range []string{os.Getenv("PICKET_CHROMIUM"), "chromium", "chromium-browser", "google-chrome",
		"google-chrome-stable"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errNoBrowser
}

func startBrowser() {
	path, err := browserPath()
	if err != nil {
		chromium.err = err
		return
	}
	home := filepath.Join(suiteDir, "browser")
	said, err := os.Create(filepath.Join(suiteDir, "browser.log"))
	if err != nil {
		chromium.err = err
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.UserDataDir(filepath.Join(home, "profile")),
		chromedp.Env("HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home), chromedp.CombinedOutput(said),
		chromedp.DisableGPU,
		chromedp.Flag("host-resolver-rules", "MAP "+secureHost+" 127.0.0.1"),
		// One process less for each tab; nothing here isolates one site from another.
		chromedp.Flag("disable-features",
			"Translate,SpareRendererForSitePerProcess,BackForwardCache,site-per-process,OptimizationHints,MediaRouter"))
	allocator, free := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(allocator)
	chromium.ctx = ctx
	chromium.stop = func() {
		_ = chromedp.Cancel(ctx) // waits for the process
		end()
		free()
		said.Close()
		awaitNone(home)
		_ = os.RemoveAll(home)
	}
	if err := chromedp.Do(ctx); err != nil {
		chromium.stop()
		chromium.stop = nil
		chromium.err = fmt.Errorf("start %s: %w", path, err)
	}
}

// awaitNone waits until no process has to do with a directory: some of a
// browser's outlive the first by a moment.
func awaitNone(dir string) {
	deadline := time.Now().Add(waitLimit)
	for _, line := range processesOf(dir) {
		_ = awaitEnd(atoi(line), deadline)
	}
}

func stopBrowser() {
	if chromium.stop != nil {
		chromium.stop()
	}
}

// tab is one person at one browser. What must never happen in a page is
// collected and fails the test at its end.
type tab struct {
	t   *testing.T
	w   *testEnv
	ctx context.Context

	keyID   string // of the key it has signed in with
	console string // scheme, host and port where the login is; empty before

	mu       sync.Mutex
	faults   []string // of scripts, of the content policy, dialogs
	forgiven []string // parts of faults that the test brings about itself
}

// browse opens a tab of its own for a test.
func (w *testEnv) browse(t *testing.T) *tab {
	t.Helper()
	chromium.once.Do(startBrowser)
	if errors.Is(chromium.err, errNoBrowser) {
		t.Skip(chromium.err)
	}
	if chromium.err != nil {
		t.Fatal(chromium.err)
	}
	b := &tab{t: t, w: w}
	ctx, end := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.listen))
	b.ctx = ctx
	t.Cleanup(func() {
		defer end()
		b.check()
	})
	// Without a timeout: the tab lives as long as the first of its contexts.
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1280, 900), chromedp.Func(plantTrap)); err != nil {
		t.Fatal(err)
	}
	return b
}

// plantTrap makes every page of the tab report a script that was smuggled in, and everything that
// the content policy had to stop.
func plantTrap(ctx context.Context, target *chromedp.Target) error {
	const trap = `Object.defineProperty(window, "__xss", {set(v) { console.error("a planted script ran: " + v); }});
		addEventListener("securitypolicyviolation", e => console.error("policy: " + e.violatedDirective + " " + e.blockedURI + " " + e.sample));`
	_, err := cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{Source: trap})
	return err
}

// listen may not wait for anything: the tab waits for it.
func (b *tab) listen(ev any) {
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		b.fault("exception: %s", exception(ev.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if ev.Type == runtime.ConsoleAPICalledTypeError || ev.Type == runtime.ConsoleAPICalledTypeWarning {
			var said []string
			for _, arg := range ev.Args {
				said = append(said, string(arg.Value)+arg.Description)
			}
			b.fault("console: %s", strings.Join(said, " "))
		}
	case *cdplog.EventEntryAdded:
		if storeTimedOut(ev.Entry) {
			break
		}
		if ev.Entry.Level == cdplog.EntryLevelError || ev.Entry.Level == cdplog.EntryLevelWarning {
			b.fault("browser: %s %s %s", ev.Entry.Source, ev.Entry.Text, ev.Entry.URL)
		}
	case *page.EventJavascriptDialogOpening:
		b.fault("a dialog opened: %s %q", ev.Type, ev.Message)
		go func() {
			_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
		}()
	}
}

// storeTimedOut tells whether an entry only reports an answer with status 503. A
// page asks again then; what it shows afterwards is what the test judges.
func storeTimedOut(entry *cdplog.Entry) bool {
	return entry.Source == cdplog.EntrySourceNetwork && strings.Contains(entry.Text, "status of 503")
}

func exception(details *runtime.ExceptionDetails) string {
	if details.Exception == nil {
		return details.Text
	}
	return details.Text + " " + details.Exception.Description
}

func (b *tab) fault(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, fmt.Sprintf(format, args...))
}

// forgive is for faults that the test brings about, such as a server that is
// away.
func (b *tab) forgive(parts ...string) { b.forgiven = append(b.forgiven, parts...) }

func (b *tab) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.faults {
		forgiven := false
		for _, part := range b.forgiven {
			forgiven = forgiven || strings.Contains(f, part)
		}
		if !forgiven {
			b.t.Errorf("in the browser: %s", f)
		}
	}
	if b.t.Failed() {
		b.keepPicture()
	}
}

// keepPicture writes a picture of the page of a failed test to PICKET_SCREENSHOTS, if that is set.
func (b *tab) keepPicture() {
	dir := os.Getenv("PICKET_SCREENSHOTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, waitLimit)
	defer cancel()
	if png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100)); err == nil {
		name := filepath.Join(dir, "failed-"+strings.ReplaceAll(b.t.Name(), "/", "-")+".png")
		_ = os.WriteFile(name, png, 0o600)
		b.t.Logf("the page at its end: %s", name)
	}
}

// do runs actions, all of them within the patience of the run.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, waitLimit)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%v; the page is %s", err, b.where())
	}
}

// withoutScripts turns JavaScript off for the pages that follow.
func (b *tab) withoutScripts() {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		b.t.Fatal(err)
	}
}
