package toolproxy_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/toolproxy"
	"github.com/picket-dev/picket/toolproxy/llm"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

// surface is every route of the proxy and what it asks of a credential:
// fenced: a lease that holds; evidence: one that ended a short while ago will
// do; newest: the same, as long as no later lease was granted; bundle: the same, and without
// stored pieces a conflict; result: the same, and without a call that waits for it a conflict; watch: it tells an ended
// lease its end; list: any lease made here; session: nothing for leases. It is written
// down here once more, on purpose: a route that is added, or that is served otherwise, has to be added here, too.
var surface = map[string]string{
	"POST /v1/lease/renew":               "fenced",
	"POST /v1/lease/release":             "fenced",
	"POST /v1/lease/reclaim":             "fenced",
	"GET /v1/lease/watch":                "watch",
	"POST /v1/run/exit":                  "evidence",
	"POST /v1/run/logs":                  "evidence",
	"POST /v1/run/events":                "evidence",
	"GET /v1/tools":                      "list",
	"GET /agent/context":                 "fenced",
	"POST /v1/tools/get_context":         "fenced",
	"POST /v1/tools/get_task":            "fenced",
	"POST /v1/tools/next_task":           "session",
	"POST /v1/tools/find_agents":         "fenced",
	"POST /v1/tools/report_progress":     "fenced",
	"POST /v1/tools/emit":                "fenced",
	"POST /v1/tools/emit_status":         "fenced",
	"POST /v1/tools/mark_complete":       "fenced",
	"POST /v1/tools/reply":               "fenced",
	"POST /v1/tools/mark_failed":         "fenced",
	"POST /v1/tools/request_human_help":  "fenced",
	"POST /v1/tools/delegate_subtask":    "fenced",
	"POST /v1/tools/await_subtask":       "fenced",
	"POST /v1/tools/review_subtask":      "fenced",
	"POST /v1/tools/send_message":        "fenced",
	"POST /v1/tools/read_messages":       "fenced",
	"GET /v1/run/messages":               "fenced",
	"POST /v1/run/evidence":              "evidence",
	"POST /v1/run/usage":                 "evidence",
	"POST /v1/run/bundle":                "bundle",
	"POST /v1/run/bundle/:digest/:piece": "newest",
	"POST /v1/tools/await_top_up":        "fenced",
	"POST /v1/run/exec/:callId":          "result",
}

// A row says how a caller comes to a credential, and what it is told by routes
// of each kind; a code that is left out means that it is let in.
type matrixRow struct {
	name     string
	make     func(h *engineEnv) string
	fenced   picket.Code
	evidence picket.Code
	watch    picket.Code
	list     picket.Code
	session  bool // a session capability, whose table is sessionSurface
}

const (
	away       = picket.CodeUnavailable
	noEntry    = picket.CodeUnauthenticated
	runOut     = picket.CodeLeaseExpired
	stale      = picket.CodeStaleFence
	foreign    = picket.CodeTaskMismatch
	wasOver    = picket.CodeLeaseReleased
	wasStopped = picket.CodeTaskCancelled
)

func everywhere(code picket.Code, name string, make func(h *engineEnv) string) matrixRow {
	return matrixRow{name, make, code, code, code, code, false}
}

func (h *engineEnv) leaseOf(then func(l picket.Lease)) string {
	l := h.submitAndLease()
	then(l)
	return l.LeaseToken.Reveal()
}

var matrix = append(sessionMatrix, []matrixRow{
	everywhere(noEntry, "none", func(*engineEnv) string { return "" }),
	everywhere(noEntry, "malformed", func(*engineEnv) string { return "hunter2" }),
	everywhere(noEntry, "an API key of an administrator", func(h *engineEnv) string {
		made, err := h.CreateKey(h.ctx, operator,
			picket.KeyRequest{Name: "root", Scopes: []picket.Scope{picket.ScopeAdmin}})
		h.ok(err)
		return made.Key.Reveal()
	}),
	everywhere(noEntry, "forged", func(h *engineEnv) string {
		good := h.submitAndLease().LeaseToken.Reveal()
		return good[:len(good)-2] + corrupt(good[len(good)-2:])
	}),
	everywhere(noEntry, "of another installation", func(h *engineEnv) string {
		l := h.submitAndLease()
		s, err := seal.New([]byte(strings.Repeat("x", 32)))
		h.ok(err)
		return s.LeaseToken("default", l.TaskID, l.RunID).Reveal()
	}),
	everywhere(noEntry, "of another run, with its own MAC", func(h *engineEnv) string {
		one, two := h.submitAndLease(), h.submitAndLease()
		return strings.Replace(one.LeaseToken.Reveal(), one.RunID[4:], two.RunID[4:], 1)
	}),
	everywhere(away, "of a namespace that is served elsewhere", func(h *engineEnv) string {
		l := h.submitAndLease()
		return h.sealer.LeaseToken("tenant", l.TaskID, l.RunID).Reveal()
	}),
	{"of another agent's task", func(h *engineEnv) string {
		one, two := h.submitAndLease(), h.submitAndLease()
		return h.sealer.LeaseToken("default", two.TaskID, one.RunID).Reveal()
	}, foreign, foreign, foreign, "", false},
	{"never granted", func(h *engineEnv) string { return h.token() }, runOut, runOut, runOut, "", false},
	{"run out, not swept yet",
		func(h *engineEnv) string { return h.leaseOf(func(picket.Lease) { h.advance(301 * time.Second) }) }, runOut, "",
		"",
		"", false},
	{"superseded", func(h *engineEnv) string { return h.leaseOf(func(picket.Lease) { h.expire(); h.lease() }) }, stale,
		"",
		"", "", false},
	{"given back", func(h *engineEnv) string {
		return h.leaseOf(func(l picket.Lease) {
			_, err := h.Release(h.ctx, h.held(l), picket.Exit{Class: picket.ExitReleased})
			h.ok(err)
		})
	}, wasOver, "", "", "", false},
	{"of a cancelled task", func(h *engineEnv) string {
		return h.leaseOf(func(l picket.Lease) { _, err := h.Cancel(h.ctx, operator, l.TaskID, ""); h.ok(err) })
	}, wasStopped, "", "", "", false},
	{"ended long ago", func(h *engineEnv) string {
		return h.leaseOf(func(picket.Lease) { h.expire(); h.advance(time.Hour) })
	},
		runOut, runOut, "", "", false},
}...)

// Every mounted route, with every credential that may not do everything,
// answers exactly what the table says.
func TestAuthMatrix(t *testing.T) {
	rig.SkipShort(t)
	cells := 0
	for _, r := range matrix {
		t.Run(strings.ReplaceAll(r.name, " ", "-"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				onVirtualStore(t, func(h *engineEnv) {
					bearer := r.make(h)
					for _, at := range h.mounted(t) {
						cells++
						h.expect(t, r, at, bearer)
					}
				})
			})
		})
	}
	t.Logf("auth matrix of the tool proxy: %d routes x %d credentials: %d cells", len(surface), len(matrix), cells)
}

// mounted lists the routes as they are served, each tool by its name; the table
// has to have the same.
func (h *engineEnv) mounted(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, r := range h.e.Routes() {
		if r.Path == mcppart.Path || strings.HasPrefix(r.Path, llm.Path) {
			continue // have their own tests
		}
		if r.Path != "/v1/tools/:name" {
			all = append(all, r.Method+" "+r.Path)
			continue
		}
		for _, tool := range everyTool() {
			all = append(all, r.Method+" /v1/tools/"+tool.Name)
		}
	}
	slices.Sort(all)
	if listed := slices.Sorted(maps.Keys(surface)); !slices.Equal(all, listed) {
		t.Fatalf("mounted are\n%s\nthe table has\n%s", strings.Join(all, "\n"), strings.Join(listed, "\n"))
	}
	return all
}

// everyTool lists the free tools of runs and of agent sessions.
func everyTool() []toolproxy.Tool {
	tools := append(toolproxy.Tools(), toolproxy.SessionTools()...)
	slices.SortFunc(tools, func(a, b toolproxy.Tool) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(tools, func(a, b toolproxy.Tool) bool { return a.Name == b.Name })
}

func (h *engineEnv) expect(t *testing.T, r matrixRow, at, bearer string) {
	t.Helper()
	newest := r.evidence
	if r.fenced == stale || r.name == "run out, not swept yet" {
		newest = r.fenced
	}
	want := map[string]picket.Code{
		"fenced":   r.fenced,
		"evidence": r.evidence,
		"newest":   newest,
		"bundle":   cmp.Or(newest, picket.CodeStateConflict),
		"result":   cmp.Or(r.evidence, picket.CodeStateConflict),
		"watch":    r.watch,
		"list":     r.list,
		"session":  picket.CodeNotFound,
	}[surface[at]]
	if r.session {
		want = r.fenced
	}
	if r.session && sessionSurface[at] {
		want = ""
	}
	if r.list != "" { // nobody who is let in at all
		want = r.list
	}
	f := h.proxyEnv
	good := requestTo(at)
	if r.session && at == "POST /v1/tools/send_message" {
		good.body = `{"to":"listener","body":"hello"}` // a run may leave out the receiver
	}
	a := f.call(t, good.with(bearer, ""))
	if want == "" && a.status/100 != 2 ||
		want != "" && (a.status != want.Status() || a.code() != string(want) || a.remedy() == "") {
		t.Errorf("%s: %d %s, want %q", at, a.status, a.raw, want)
	}
}

// requestTo is a good request for a route.
func requestTo(at string) request {
	method, path, _ := strings.Cut(at, " ")
	for _, c := range goodRequests {
		known, _, _ := strings.Cut(c.path, "?")
		if known == strings.NewReplacer(":digest", aDigest, ":piece", "0").Replace(path) {
			return c
		}
	}
	r := request{method: method, path: strings.Replace(path, ":callId", "call_"+aRun[4:], 1)}
	if method == "POST" {
		r.body = `{}`
	}
	return r
}
