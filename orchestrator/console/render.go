package console

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

//go:embed templates
var templateFiles embed.FS

// partHeader is sent by the script that keeps a page up to date: the answer is
// the same, and it does not count as a use of the login.
const partHeader = "Picket-Part"

// page is what a handler shows.
type page struct {
	name   string // of its template, templates/<name>.html
	title  string // may hold the words of agents: it is escaped like all text
	status int    // defaults to that of problem, or 200
	nav    string // the route whose entry in the navigation is marked, if the page is not below its path
	// topics are the events after which the page looks different: prefixes of
	// their types such as "task.", or ids of tasks, runs and agents.
	topics []string
	body   any
	// problem is what went wrong with what the person wanted to do here. The page
	// is shown again with everything they typed.
	problem error
}

// view is what a template sees as $.
type view struct {
	Title    string
	Path     string // of this page, with its parameters
	Theme    string
	SignedIn bool
	Cookies  bool // the site may store something in the browser
	Who      picket.Principal
	Nav      []navEntry
	Stats    picket.Stats // zero when nobody is signed in
	Now      picket.Instant
	Topics   string
	Posted   bool   // the answer to a form, not to the page's own address
	Flash    string // what the person has just done, a sentence
	Problem  *problem
	Body     any
	Nonce    string
	Typed    url.Values // into the form that was refused
	request  *request
}

type navEntry struct {
	Label   string
	Path    string
	Go      string // the letter after g that leads there
	Current bool
	Count   int64 // what waits there for a person
}

// May reports whether the person may go to a page or decide, by the name of its
// route.
func (w view) May(name string) (bool, error) {
	if _, known := w.request.console.routes[name]; !known {
		return false, fmt.Errorf("no route is named %s", name)
	}
	return w.request.may(name), nil
}

// Late reports whether a deadline has passed.
func (w view) Late(deadline picket.Instant) bool { return !deadline.IsZero() && deadline <= w.Now }

// Name is a key as the person who asks knows it.
func (w view) Name(keyID string) string {
	if keyID == w.Who.KeyID {
		return "you"
	}
	return keyID
}

// Refused reports whether the page is shown because a form was refused, by the name of
// the form's route.
func (w view) Refused(name string) bool { return w.Posted && w.request.route.name == name }

// Waiting is how many hand-offs and reviews wait for a person.
func (w view) Waiting() int64 { return w.Stats.Handoffs + w.Stats.Reviews }

func (c *Console) parseTemplates() (map[string]*template.Template, error) {
	funcs := template.FuncMap{"asset": c.assets.Address}
	for name, f := range templateFuncs {
		funcs[name] = f
	}
	shared, err := template.New("").Funcs(funcs).
		ParseFS(templateFiles, "templates/layout.html", "templates/parts*.html")
	if err != nil {
		return nil, err
	}
	files, err := templateFiles.ReadDir("templates")
	if err != nil {
		return nil, err
	}
	pages := map[string]*template.Template{}
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), path.Ext(f.Name()))
		if name == "layout" || strings.HasPrefix(name, "parts") {
			continue
		}
		t, err := shared.Clone()
		if err == nil {
			t, err = t.ParseFS(templateFiles, "templates/"+f.Name())
		}
		if err != nil {
			return nil, err
		}
		pages[name] = t
	}
	return pages, nil
}

// render answers a page. What every page shows around its own matter is asked
// of the engine by [request.loadStats], at most once a request.
func (v *request) render(p page) error {
	if err := v.loadStats(); err != nil {
		return err
	}
	if p.problem != nil {
		v.problem = p.problem
	}
	w := view{
		Title:    p.title,
		Path:     v.currentPath(),
		Theme:    v.theme(),
		SignedIn: v.backend != nil,
		Cookies:  v.site.kind != signInSite && v.site.kind != closedSite,
		Who:      v.login.Principal,
		Stats:    v.stats,
		Now:      v.now(),
		Topics:   strings.Join(p.topics, " "),
		Posted:   v.Request().Method == post,
		Body:     p.body,
		Nonce:    v.nonce(),
		Typed:    v.Request().PostForm,
		request:  v,
	}
	w.Nav = v.navigation(p)
	if site := v.Request().Header.Get("Sec-Fetch-Site"); v.Request().Method == get &&
		(site == "" || site == "same-origin") {
		w.Flash = flashMessage(v.QueryParam("did"), v.QueryParam("id"))
	}
	status := p.status
	if v.problem != nil {
		w.Problem = newProblem(v.problem, v)
		w.Problem.Alone = p.name == "problem"
		status = cmp.Or(status, w.Problem.status)
		if w.Problem.retryAfter > 0 {
			v.Response().Header().Set(echo.HeaderRetryAfter, strconv.Itoa(w.Problem.retryAfter))
		}
	}
	return v.writePage(cmp.Or(status, http.StatusOK), p.name, w)
}

// writePage finishes the page before anything of it is sent.
func (v *request) writePage(status int, name string, w view) error {
	t, known := v.console.templates[name]
	if !known {
		return fmt.Errorf("there is no template %s", name)
	}
	var out bytes.Buffer
	if err := t.ExecuteTemplate(&out, "layout", w); err != nil {
		return fmt.Errorf("make page %s: %w", name, err)
	}
	v.Response().Header().Add(echo.HeaderVary, "Cookie, "+partHeader)
	return v.HTMLBlob(status, out.Bytes())
}

// loadStats asks for what the frame of a page shows.
func (v *request) loadStats() error {
	if v.backend == nil || v.statsLoaded {
		return nil
	}
	stats, err := v.backend.Stats.Stats(v.ctx())
	if err != nil {
		return err
	}
	v.stats, v.statsLoaded = stats, true
	return nil
}

// now is the store's own clock, of which all times on a page are. Store time is
// not: it stands behind it for as long as nothing ran.
func (v *request) now() picket.Instant {
	return v.stats.LastTick + picket.Instant(v.stats.SinceTickMs)
}

// nonce numbers the forms of a page. A form that is shown again after a refusal keeps its number,
// so that a person can press the button again when the outcome is unknown. The exception is a
// number that was used before.
func (v *request) nonce() string {
	if v.token == "" {
		return "" // nobody decides here
	}
	if sent := v.formValue(nonceField); v.problem != nil && v.ownsNonce(sent) &&
		!errors.Is(v.problem, picket.CodeIdempotencyConflict) {
		return sent
	}
	return v.newNonce()
}

// navigation has the pages that the person may go to. The page that is shown, or the
// one above it, is marked.
func (v *request) navigation(p page) []navEntry {
	var all []navEntry
	for _, r := range routes() {
		if r.nav == "" || !v.may(r.name) {
			continue
		}
		e := navEntry{
			Label: r.nav,
			Path:  r.path,
			Go:    r.letter,
			Current: p.name != "problem" && (r.name == p.nav || r.path == v.route.path ||
				r.path != homePath && strings.HasPrefix(v.route.path, r.path+"/")),
		}
		switch r.name {
		case "handoffs":
			e.Count = v.stats.Handoffs
		case "reviews":
			e.Count = v.stats.Reviews
		}
		all = append(all, e)
	}
	return all
}

// problem is a refusal as a person reads it.
type problem struct {
	Title      string
	Message    string
	Remedy     string
	Unknown    bool // whether it took effect is not known
	Alone      bool // the page says nothing else
	Facts      map[string]any
	RequestID  string
	status     int
	retryAfter int
}

func newProblem(err error, v *request) *problem {
	refusal, ok := picket.RefusalOf(err)
	if !ok {
		v.console.log.ErrorContext(v.Request().Context(), "page failed", "route", v.Path(), "err", err)
		refusal = picket.Refuse(picket.CodeInternal,
			"Try again; if it stays, look for the request id in the server's log.", "something went wrong on our side")
	}
	p := &problem{
		Title:      refusal.Code.Title(),
		Message:    refusal.Error(),
		Remedy:     refusal.Remedy,
		Facts:      refusal.Facts,
		Unknown:    v.submitting && errors.Is(err, picket.ErrUnknown),
		status:     refusal.Code.Status(),
		retryAfter: int(math.Ceil(refusal.RetryAfter.Seconds())),
	}
	if p.status >= 500 {
		p.RequestID = web.RequestID(v)
	}
	return p
}

// renderError shows what went wrong as a page of its own, unless the answer is under
// way already: no page belongs into a stream.
func (c *Console) renderError(v *request, err error) error {
	if v.Response().Committed {
		return err
	}
	p := newProblem(err, v)
	if p.status == http.StatusUnauthorized {
		v.backend = nil
		return v.loginPage(v.currentPath(), err)
	}
	if v.loadStats() != nil {
		v.backend = nil // the store does not answer: the page does without
	}
	return v.render(page{name: "problem", title: p.Title, problem: err})
}

// notFound answers what no route takes.
func notFound(v *request) error {
	return picket.Refuse(picket.CodeNotFound, "Choose a page in the navigation.", "there is no such page")
}
