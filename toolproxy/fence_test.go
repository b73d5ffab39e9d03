package toolproxy_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// show prints a value with its maps in order.
func show(v any) string { return fmt.Sprintf("%v", v) }

// fenced are the calls that need a lease that holds; evidence those that are
// taken for a while after it ended.
var (
	fenced = []string{"renew", "release", "report_progress", "emit", "emit_status",
		"mark_complete", "reply", "mark_failed", "request_human_help", "get_task", "get_context", "agent_context",
		"delegate_subtask", "find_agents", "await_subtask", "review_subtask",
		"send_message", "read_messages"}
	evidence = []string{"exit", "logs", "events"}
)

// credential is a row of the table: how a caller comes to hold it, and what it
// is told.
type credential struct {
	name   string
	make   func(h *engineEnv) (bearer, fence string)
	status int
	code   picket.Code
	tell   string // part of the remedy
	all    bool   // evidence and watch are refused alike
}

func (h *engineEnv) submitAndLease() picket.Lease { h.submit(); return h.lease() }

var credentials = []credential{
	{
		name:   "superseded after an operator took it",
		status: 412,
		code:   picket.CodeStaleFence,
		tell:   "Stop writing and exit: this task now belongs to run_",
		make: func(h *engineEnv) (string, string) {
			l := h.submitAndLease()
			_, err := h.Expire(h.ctx, operator, l.TaskID, "test")
			h.ok(err)
			h.lease()
			return l.LeaseToken.Reveal(), ""
		},
	},
	{
		name:   "superseded after it ran out, with its own fence",
		status: 412,
		code:   picket.CodeStaleFence,
		tell:   "Stop writing and exit: this task now belongs to run_",
		make: func(h *engineEnv) (string, string) {
			l := h.submitAndLease()
			h.expire()
			h.lease()
			return l.LeaseToken.Reveal(), "1"
		},
	},
	{
		name:   "superseded, with the fence of the new lease",
		status: 412,
		code:   picket.CodeStaleFence,
		tell:   "Stop writing and exit",
		make: func(h *engineEnv) (string, string) {
			l := h.submitAndLease()
			h.expire()
			h.lease()
			return l.LeaseToken.Reveal(), "2"
		},
	},
	{name: "run out, not swept yet", status: 412, code: picket.CodeLeaseExpired, tell: "Stop writing and exit",
		make: func(h *engineEnv) (string, string) {
			l := h.submitAndLease()
			h.advance(300e9)
			return l.LeaseToken.Reveal(), "1"
		}},
	{name: "run out and swept", status: 412, code: picket.CodeLeaseExpired, tell: "Stop writing and exit",
		make: func(h *engineEnv) (string, string) {
			l := h.submitAndLease()
			h.expire()
			return l.LeaseToken.Reveal(), "1"
		}},
	{name: "taken by an operator", status: 412, code: picket.CodeLeaseExpired, tell: "Stop writing and exit",
		make: func(h *engineEnv) (string, string) {
			l := h.submitAndLease()
			_, err := h.Expire(h.ctx, operator, l.TaskID, "test")
			h.ok(err)
			return l.LeaseToken.Reveal(), ""
		}},
	{name: "released", status: 412, code: picket.CodeLeaseReleased, tell: "Stop writing and exit",
		make: func(h *engineEnv) (string, string) {
			l := h.submitAndLease()
			_, err := h.Release(h.ctx, h.held(l), picket.Exit{Class: picket.ExitReleased})
			h.ok(err)
			return l.LeaseToken.Reveal(), "1"
		}},
	{name: "completed", status: 412, code: picket.CodeLeaseReleased, tell: "Stop writing and exit",
		make: func(h *engineEnv) (string, string) {
			l := h.submitAndLease()
			_, err := h.Complete(h.ctx, h.held(l), picket.Completion{Output: picket.RawJSON(`"another output"`)})
			h.ok(err)
			return l.LeaseToken.Reveal(), ""
		}},
	{name: "parked for a person", status: 412, code: picket.CodeLeaseReleased, tell: "Stop writing and exit",
		make: func(h *engineEnv) (string, string) {
			l := h.submitAndLease()
			_, err := h.RequestHelp(h.ctx, h.held(l), picket.HelpRequest{Question: "another question"})
			h.ok(err)
			return l.LeaseToken.Reveal(), ""
		}},
	{name: "failed", status: 412, code: picket.CodeLeaseReleased, tell: "Stop writing and exit",
		make: func(h *engineEnv) (string, string) {
			l := h.submitAndLease()
			_, err := h.Fail(h.ctx, h.held(l), "another reason", true)
			h.ok(err)
			return l.LeaseToken.Reveal(), ""
		}},
	{name: "of a cancelled task", status: 412, code: picket.CodeTaskCancelled, tell: "Stop writing and exit",
		make: func(h *engineEnv) (string, string) {
			l := h.submitAndLease()
			_, err := h.Cancel(h.ctx, operator, l.TaskID, "test")
			h.ok(err)
			return l.LeaseToken.Reveal(), "1"
		}},
	{
		name:   "foreign: the task in it was edited",
		status: 403,
		code:   picket.CodeTaskMismatch,
		tell:   "exactly as it was handed",
		all:    true,
		make: func(h *engineEnv) (string, string) {
			l := h.submitAndLease()
			other := h.submit()
			return strings.Replace(l.LeaseToken.Reveal(), l.TaskID[5:], other.TaskID[5:], 1), "1"
		},
	},
	{
		name:   "of a lease nobody knows",
		status: 412,
		code:   picket.CodeLeaseExpired,
		tell:   "Stop writing and exit",
		all:    true,
		make: func(h *engineEnv) (string, string) {
			return h.sealer.LeaseToken("default", h.submitAndLease().TaskID, aRun).Reveal(), ""
		},
	},
	{name: "with an edited MAC", status: 401, code: picket.CodeUnauthenticated, tell: "PICKET_LEASE_TOKEN", all: true,
		make: func(h *engineEnv) (string, string) {
			token := h.submitAndLease().LeaseToken.Reveal()
			return token[:len(token)-2] + corrupt(token[len(token)-2:]), "1"
		}},
	{name: "missing", status: 401, code: picket.CodeUnauthenticated, tell: "PICKET_LEASE_TOKEN", all: true,
		make: func(h *engineEnv) (string, string) { h.submitAndLease(); return "", "1" }},
	{name: "good, with a lower fence", status: 412, code: picket.CodeStaleFence, tell: "",
		make: func(h *engineEnv) (string, string) {
			h.submitAndLease()
			h.expire()
			return h.lease().LeaseToken.Reveal(), "1"
		}},
	{name: "good, with a higher fence", status: 412, code: picket.CodeUnknownFence, tell: "your own lease",
		make: func(h *engineEnv) (string, string) { return h.submitAndLease().LeaseToken.Reveal(), "2" }},
	{name: "good, with garbage for a fence", status: 400, code: picket.CodeValidation, tell: "plain digits", all: true,
		make: func(h *engineEnv) (string, string) { return h.submitAndLease().LeaseToken.Reveal(), "0x1" }},
}

// TestCredentials holds every credential that must not write against every
// call: the exact code, an instruction a model can follow, and no change.
func TestCredentials(t *testing.T) {
	for _, c := range credentials {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			onBothStores(t, func(t *testing.T, h *engineEnv) {
				bearer, fence := c.make(h)
				names := slices.Clone(fenced)
				if c.all {
					names = append(append(names, evidence...), "watch")
				}
				for _, name := range names {
					h.refuses(t, c, name, bearer, fence)
				}
				h.checkRecord(t, c, names)
			})
		})
	}
}

func (h *engineEnv) refuses(t *testing.T, c credential, name, bearer, fence string) {
	t.Helper()
	before := h.state()
	a := h.call(t, goodRequests[name].with(bearer, fence))
	if a.status != c.status || a.code() != string(c.code) {
		t.Errorf("%s: %d %s, want %d %s", name, a.status, a.raw, c.status, c.code)
	}
	if !strings.Contains(a.remedy(), c.tell) || a.remedy() == "" || text(a.body["message"]) == "" {
		t.Errorf("%s: the remedy %q does not say %q", name, a.remedy(), c.tell)
	}
	if after := h.state(); !maps.Equal(before, after) {
		t.Errorf("%s was refused and changed the state:\n%s", name, difference(before, after))
	}
	if bearer != "" && strings.Contains(a.raw, bearer[len(bearer)-20:]) {
		t.Errorf("%s: the answer shows the lease token: %s", name, a.raw)
	}
}

// checkRecord finds one write.refused for each refused write, and none for
// reads and for callers that were never let in.
func (h *engineEnv) checkRecord(t *testing.T, c credential, names []string) {
	t.Helper()
	var want []string
	for _, name := range names {
		crossed := name == "release" && c.code == picket.CodeLeaseReleased // no stranger's write
		if c.code.Fenced() && slices.Contains(writes, name) && !crossed {
			want = append(want, name+" "+string(c.code))
		}
	}
	page, err := h.Events(h.ctx, picket.EventQuery{Types: []string{picket.EventWriteRefused}, Limit: 1000})
	h.ok(err)
	var got []string
	for _, e := range page.Events {
		data := decode(t, string(e.Data))
		got = append(got, text(data["verb"])+" "+text(data["code"]))
		if _, ok := data["presented"]; !ok {
			t.Errorf("write.refused does not say what was presented: %s", e.Data)
		}
		if _, ok := data["current"]; !ok {
			t.Errorf("write.refused does not say what is current: %s", e.Data)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("recorded %v, want %v", got, want)
	}
}

func difference(before, after map[string]string) string {
	var out strings.Builder
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if before[key] != after[key] {
			fmt.Fprintf(&out, "%s\n  before %s\n  after  %s\n", key, before[key], after[key])
		}
	}
	for key := range before {
		if _, ok := after[key]; !ok {
			fmt.Fprintf(&out, "%s is gone\n", key)
		}
	}
	return out.String()
}

// The facts of a stale fence are numbers that a client may compare.
func TestAStaleFenceSaysWhoHoldsTheTask(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		old := h.submitAndLease()
		h.expire()
		new := h.lease()
		a := h.call(t, goodRequests["report_progress"].with(old.LeaseToken.Reveal(),
			strconv.FormatInt(old.FencingToken, 10)))
		if a.body["presented"] != 1.0 || a.body["current"] != 2.0 ||
			a.remedy() != "Stop writing and exit: this task now belongs to "+new.RunID+"." {
			t.Errorf("%s", a.raw)
		}
		_, err := h.Engine.Fail(h.ctx, h.held(new), "no", true)
		h.ok(err)
		a = h.call(t, goodRequests["report_progress"].with(old.LeaseToken.Reveal(),
			strconv.FormatInt(old.FencingToken, 10)))
		if a.remedy() != "Stop writing and exit: the task was taken away from this run." {
			t.Errorf("while nobody holds the task: %s", a.raw)
		}
		if new.FencingToken != old.FencingToken+1 {
			t.Errorf("fence %d after %d", new.FencingToken, old.FencingToken)
		}
	})
}
