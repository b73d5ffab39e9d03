//go:build linux

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/picket-dev/picket"
)

// open goes to a page of the console, at the host name of the login once there
// is one. On a busy machine the store may not answer in time: the page then has
// status 503 and asks the person to try again, which open does.
func (b *tab) open(path string) {
	b.t.Helper()
	const tries = 5
	for range tries {
		b.do(chromedp.Navigate(cmp.Or(b.console, b.w.url) + path))
		status, err := eval[int](b, `performance.getEntriesByType("navigation")[0]?.responseStatus ?? 0`)
		if err != nil || status != http.StatusServiceUnavailable {
			return
		}
	}
	b.t.Fatalf("%s had status 503 %d times; the page is %s", path, tries, b.where())
}

// signIn opens a page with a key of some scopes, through the login form.
func (b *tab) signIn(path string, scopes ...picket.Scope) {
	b.t.Helper()
	if len(scopes) == 0 {
		scopes = []picket.Scope{picket.ScopeAdmin}
	}
	var made struct {
		Key   string `json:"key"`
		KeyID string `json:"keyId"`
	}
	b.w.with(b.t).into(&made, http.MethodPost, "/keys",
		picket.KeyRequest{Name: strings.ToLower(strings.ReplaceAll(b.t.Name(), "/", "-")), Scopes: scopes})
	b.keyID = made.KeyID
	b.console = ""
	b.open(path)
	b.fill("#key", made.Key)
	b.press("Enter")
	b.sees("header nav")
	origin, err := eval[string](b, "location.origin")
	if err != nil {
		b.t.Fatal(err)
	}
	b.console = origin
}

// with is the same world for a part of its test.
func (w *testEnv) with(t *testing.T) *testEnv {
	part := *w
	part.t = t
	return &part
}

// eval evaluates an expression in the page.
func eval[T any](b *tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, waitLimit)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression))
}

// until waits for an expression to be true, over any number of pages.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	if err := b.becomes(2*waitLimit, expression); err != nil {
		b.t.Fatalf("not seen: %s (%v); the page is %s", what, err, b.where())
	}
}

// becomes waits for an expression to be true; the error says why it is not.
func (b *tab) becomes(within time.Duration, expression string) error {
	err := errors.New("it is false")
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		is, failed := eval[bool](b, "Boolean("+expression+")") // a page that is just being left is not an answer
		if is && failed == nil {
			return nil
		}
		if failed != nil {
			err = failed
		}
	}
	return err
}

// sees waits for an element that is shown.
func (b *tab) sees(selector string) {
	b.t.Helper()
	b.until(selector, fmt.Sprintf(`(e => e && e.checkVisibility())(document.querySelector(%s))`,
		strconv.Quote(selector)))
}

// reads waits for an element with a text in it.
func (b *tab) reads(selector, text string) {
	b.t.Helper()
	b.until(selector+" with "+text,
		fmt.Sprintf(`[...document.querySelectorAll(%s)].some(e => e.innerText.includes(%s))`, strconv.Quote(selector),
			strconv.Quote(text)))
}

// readsNo waits until no such element has the text.
func (b *tab) readsNo(selector, text string) {
	b.t.Helper()
	b.until(selector+" without "+text,
		fmt.Sprintf(`![...document.querySelectorAll(%s)].some(e => e.innerText.includes(%s))`, strconv.Quote(selector),
			strconv.Quote(text)))
}

// at waits until the address of the page begins with a path.
func (b *tab) at(path string) {
	b.t.Helper()
	b.until("the page "+path,
		fmt.Sprintf(`(location.pathname + location.search).startsWith(%s) && document.readyState === "complete"`,
			strconv.Quote(path)))
}

// click presses what is shown under a selector, with the mouse.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.sees(selector)
	b.do(chromedp.ScrollIntoView(chromedp.CSS(selector)), chromedp.Click(chromedp.CSS(selector)))
}

// submits presses the button of a form, and waits until an element has a text. On a busy machine the store may not
// answer within its second: the page then has status 503 and asks the person to repeat the same request. The person
// reloads the page, which sends the form again under its number, so that it counts once.
func (b *tab) submits(button, selector, text string) {
	b.t.Helper()
	shows := fmt.Sprintf(`[...document.querySelectorAll(%s)].some(e => e.innerText.includes(%s))`,
		strconv.Quote(selector), strconv.Quote(text))
	const unanswered = `performance.getEntriesByType("navigation")[0]?.responseStatus === 503`
	b.leaves(func() { b.click(button) })
	const tries = 5
	for range tries {
		b.until(text+", or a store that does not answer",
			`!window.left && document.readyState === "complete" && (`+shows+` || `+unanswered+`)`)
		if is, err := eval[bool](b, shows); err != nil || is {
			return
		}
		b.leaves(func() { b.do(chromedp.Reload()) })
	}
	b.t.Fatalf("%s was answered with status 503 %d times; the page is %s", button, tries, b.where())
}

// leaves marks the page that an act leaves, so that it is not taken for the next one.
func (b *tab) leaves(act func()) {
	b.t.Helper()
	if _, err := eval[bool](b, `window.left = true`); err != nil {
		b.t.Fatal(err)
	}
	act()
}

// unfold opens the details around what a selector finds.
func (b *tab) unfold(selector string) {
	b.t.Helper()
	b.click("details:has(" + selector + ") > summary")
	b.sees(selector)
}

// fill types into a field, as a person would.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.sees(selector)
	b.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

var keyNames = map[string]string{"Enter": kb.Enter, "Escape": kb.Escape, "Tab": kb.Tab}

// press presses keys, one after another, wherever the focus is. As in a browser
// a key and its character are one: a page that takes the key takes both.
func (b *tab) press(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		if name, special := keyNames[k]; special {
			k = name
		}
		strokes := kb.Encode([]rune(k)[0])
		down, up := *strokes[0], *strokes[len(strokes)-1]
		if len(strokes) == 3 {
			down.Text, down.UnmodifiedText = strokes[1].Text, strokes[1].UnmodifiedText
		}
		for _, stroke := range []input.DispatchKeyEventParams{down, up} {
			if _, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, stroke); err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

// text is what the page shows.
func (b *tab) text(selector string) string {
	b.t.Helper()
	text, err := eval[string](b, fmt.Sprintf(`document.querySelector(%s)?.innerText ?? ""`, strconv.Quote(selector)))
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

// texts is what each of the elements shows.
func (b *tab) texts(selector string) []string {
	b.t.Helper()
	all, err := eval[[]string](b,
		fmt.Sprintf(`[...document.querySelectorAll(%s)].map(e => e.textContent)`, strconv.Quote(selector)))
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// where describes the page for a message.
func (b *tab) where() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	is, err := chromedp.Run(ctx,
		chromedp.Evaluate[string](`location.href + " " + document.title + "\n" + document.body.innerText.slice(0, 3000)`))
	if err != nil {
		return err.Error()
	}
	return is
}

// live waits until the page follows the events.
func (b *tab) live() { b.t.Helper(); b.sees(`#live[data-state=live]`) }
