package api_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

const (
	aTrace     = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	otherTrace = "00-11111111111111111111111111111111-2222222222222222-00"
)

// A trace is kept with its task, shown with it, handed on with each of its
// leases, and is that of whatever comes of it.
func TestATraceGoesWithTheTask(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		const state = `rojo={"a":1},congo=t61rcWkgMzE`
		shown := func(id, parent, state string) {
			t.Helper()
			a := p.want(200, "GET", "/api/v1/tasks/"+id, "reviewer", "")
			var task picket.Task
			must(t, json.Unmarshal([]byte(a.raw), &task))
			if want := (picket.Trace{Parent: parent, State: state}); task.Trace == nil || *task.Trace != want {
				t.Errorf("the trace of %s is %+v, want %+v", task.Title, task.Trace, want)
			}
		}
		first := p.want(201, "POST", "/api/v1/tasks", "operator",
			`{"title":"first","input":"{","labels":{"trace":"x"}}`, "Traceparent", aTrace, "Tracestate", state)
		id := first.text("taskId")
		if !strings.Contains(first.raw, `"traceparent":"`+aTrace+`"`) {
			t.Errorf("the answer to submit: %s", first.raw)
		}
		shown(id, aTrace, state)
		lease, held := p.lease()
		if lease.Task.Trace == nil || lease.Task.Trace.Parent != aTrace || lease.Task.Trace.State != state {
			t.Errorf("the lease has %+v", lease.Task.Trace)
		}
		sub, err := p.Delegate(t.Context(), held, "k", picket.Subtask{Title: "subtask"})
		must(t, err)
		shown(sub.TaskID, aTrace, state)
		_, err = p.Complete(t.Context(), held, picket.Completion{Children: picket.ChildrenCancel})
		must(t, err)

		reject := func(id, fix string) string {
			t.Helper()
			return p.want(200, "POST", "/api/v1/reviews/"+id+"/reject", "reviewer", `{"note":"no","fix":`+fix+`}`).
				text("fixTaskId")
		}
		fix := reject(id, `{"title":"repair","budgetEnvelope":{"tokens":5}}`)
		shown(fix, aTrace, state)
		again := p.want(200, "POST", "/api/v1/tasks/"+id+"/retry", "operator", `{}`).text("taskId")
		shown(again, aTrace, state)

		own := p.want(201, "POST", "/api/v1/tasks", "operator",
			`{"title":"a repair in a trace of its own","fixes":"`+id+`"}`, "Traceparent", otherTrace)
		shown(own.text("taskId"), otherTrace, "")
		none := p.want(201, "POST", "/api/v1/tasks", "operator",
			`{"title":"a repair that brings none","fixes":"`+id+`"}`)
		shown(none.text("taskId"), aTrace, state)
	})
}

func TestATraceThatIsNotValidIsIgnored(t *testing.T) {
	p := newMemoryFixture(t)
	for _, headers := range [][]string{{}, {"Traceparent", strings.ToUpper(aTrace)},
		{"Traceparent", aTrace + ", " + aTrace}, {"Tracestate", "a=1"}} {
		a := p.want(201, "POST", "/api/v1/tasks", "operator", `{"title":"x"}`, headers...)
		if trace, there := a.body["trace"]; !there || trace != nil {
			t.Errorf("%v: %s", headers, a.raw)
		}
	}
	if a := p.want(201, "POST", "/api/v1/tasks", "operator", `{"title":"x"}`, "Traceparent", aTrace, "Tracestate",
		"a=1,a=2"); !strings.Contains(a.raw, `"trace":{"traceparent":"`+aTrace+`","tracestate":""}`) {
		t.Errorf("a bad tracestate: %s", a.raw)
	}
	p.wantCode(picket.CodeValidation, "POST", "/api/v1/tasks", "operator",
		`{"title":"x","trace":{"traceparent":"`+aTrace+`"}}`)
}

// The same request again is the same request, whatever trace it is sent in.
func TestARepeatedSubmitKeepsItsTrace(t *testing.T) {
	p := newMemoryFixture(t)
	first := p.want(201, "POST", "/api/v1/tasks", "operator", `{"title":"x"}`, "Idempotency-Key", "k", "Traceparent",
		aTrace)
	for _, headers := range [][]string{{"Traceparent", otherTrace}, {}, {"Traceparent", "?"}} {
		a := p.want(201, "POST", "/api/v1/tasks", "operator", `{"title":"x"}`,
			append(headers, "Idempotency-Key", "k")...)
		if a.text("taskId") != first.text("taskId") || !strings.Contains(a.raw, aTrace) {
			t.Errorf("%v: %s", headers, a.raw)
		}
	}
}

// An answer that asks to look into the log can be found there.
func TestTheLogNamesTheRequestThatFailed(t *testing.T) {
	p := newMemoryFixture(t)
	must(t, p.store.Close())
	a := p.wantCode(picket.CodeUnavailable, "GET", "/api/v1/stats", "operator", "", "Traceparent", aTrace)
	want := "requestId=" + a.text("requestId") + " traceId=" + strings.Split(aTrace, "-")[1]
	if a.text("requestId") == "" || !strings.Contains(p.log.String(), want) {
		t.Errorf("the log has no %s: %s", want, p.log)
	}
}
