package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// payCall is one call of a run, reserved and settled.
func (p *fixture) payCall(held picket.LeaseCredential, id string, reserve, cost budget.Money) {
	p.t.Helper()
	req := picket.CallRequest{
		CallID:       id,
		Nonce:        "n",
		Tool:         "http_request",
		Reserve:      budget.Envelope{USD: reserve},
		PriceVersion: "p1",
		Effects:      picket.EffectsNone,
		TimeoutMs:    1000,
	}
	_, err := p.Reserve(p.t.Context(), held, req)
	must(p.t, err)
	_, err = p.Settle(p.t.Context(),
		picket.Settlement{
			CallID:  id,
			TaskID:  held.TaskID,
			Nonce:   "n",
			Outcome: picket.CallDone,
			Cost:    budget.Envelope{USD: cost},
			Detail:  "200",
		})
	must(p.t, err)
}

func TestMoneyIsShownAndAdded(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		p.submit(`{"title":"x"}`)
		lease, held := p.lease()
		path := "/api/v1/envelopes/" + lease.TaskID
		if got := fmt.Sprint(p.want(200, "GET", path, "operator",
			"").body["spentInAll"]); got != "map[tokens:0 usd:0]" {
			t.Errorf("before anything was spent, spentInAll is %s", got)
		}
		p.payCall(held, "one", 300_000_000, 250_000_000)
		_, err := p.Reserve(t.Context(), held,
			picket.CallRequest{
				CallID:    "two",
				Nonce:     "n",
				Tool:      "sql",
				Reserve:   budget.Envelope{USD: 100_000_000},
				Effects:   picket.EffectsExternal,
				TimeoutMs: 1000,
			})
		must(t, err)

		a := p.want(200, "GET", path, "reviewer", "")
		if got := fmt.Sprint(a.body["spent"], a.body["held"], a.body["available"],
			a.body["locked"]); got != "map[tokens:0 usd:0.25] map[tokens:0 usd:0.1] map[tokens:1e+06 usd:0.65] false" {
			t.Errorf("envelope: %s", a.raw)
		}
		calls, _ := a.body["calls"].([]any)
		if len(calls) != 1 || !strings.Contains(a.raw, `"effects":"external"`) {
			t.Errorf("calls under way: %s", a.raw)
		}

		const more = `{"usd":"0.5","tokens":7,"reason":"a long one"}`
		first := p.want(200, "POST", path+"/top-up", "operator", more, "Idempotency-Key", "k")
		again := p.want(200, "POST", path+"/top-up", "operator", more, "Idempotency-Key", "k")
		for _, a := range []response{first, again} {
			if got := fmt.Sprint(a.body["granted"],
				a.body["budgetEnvelope"]); got != "map[tokens:1.000007e+06 usd:1.5] map[tokens:1.000007e+06 usd:1.5]" {
				t.Errorf("topped up: %s", a.raw)
			}
		}
		p.wantCode(picket.CodeIdempotencyConflict, "POST", path+"/top-up", "operator", `{"usd":1}`, "Idempotency-Key",
			"k")

		page := p.want(200, "GET", "/api/v1/ledger?task="+lease.TaskID, "reviewer", "")
		if page.raw != p.want(200, "GET", "/api/v1/ledger", "reviewer", "").raw {
			t.Errorf("the only envelope's rows are not all rows: %s", page.raw)
		}
		rows, _ := page.body["rows"].([]any)
		if len(rows) != 2 {
			t.Fatalf("rows: %s", page.raw)
		}
		row, _ := rows[0].(map[string]any)
		if got := fmt.Sprintf("%v %v %v %v %v", row["kind"], row["tool"], row["charged"], row["priceVersion"],
			row["detail"]); got != "call http_request map[tokens:0 usd:0.25] p1 200" {
			t.Errorf("the call: %s", page.raw)
		}
		report := p.want(200, "GET", "/api/v1/spending?by=day,model&since=30d", "reviewer", "")
		if got := fmt.Sprint(report.body["total"], report.body["complete"]); got !=
			"map[calls:1 spent:map[tokens:0 usd:0.25]] true" {
			t.Errorf("what was spent: %s", report.raw)
		}
		p.wantCode(picket.CodeForbidden, "GET", "/api/v1/spending", "agent", "")
		p.wantCode(picket.CodeValidation, "GET", "/api/v1/spending?by=agent", "reviewer", "")
		p.wantCode(picket.CodeValidation, "GET", "/api/v1/spending?for=me", "reviewer", "")
		one := p.want(200, "GET", "/api/v1/ledger?limit=1", "reviewer", "")
		rest := p.want(200, "GET", "/api/v1/ledger?limit=2&after="+one.text("next"), "reviewer", "")
		if !strings.Contains(rest.raw, `"kind":"top_up"`) || strings.Contains(rest.raw, `"kind":"call"`) ||
			rest.body["next"] != nil {
			t.Errorf("the second page: %s", rest.raw)
		}
	})
}

func TestTopUpsThatAreRefused(t *testing.T) {
	p := newMemoryFixture(t)
	p.submit(`{"title":"x"}`)
	lease, _ := p.lease()
	path := "/api/v1/envelopes/" + lease.TaskID + "/top-up"
	if a := p.wantCode(picket.CodePreconditionRequired, "POST", path, "operator",
		`{"usd":1}`); !strings.Contains(a.text("remedy"), "Idempotency-Key") {
		t.Errorf("remedy: %s", a.raw)
	}
	for body, field := range map[string]string{
		`{}`:                          "/usd",
		`{"usd":0}`:                   "/usd",
		`{"usd":-1}`:                  "/usd",
		`{"tokens":-1}`:               "/tokens",
		`{"tokens":1.5}`:              "/tokens",
		`{"usd":"NaN"}`:               "/usd",
		`{"usd":1e400}`:               "/usd",
		`{"usd":0.0000000001}`:        "/usd",
		`{"usd":5000000}`:             "/usd",
		`{"tokens":9007199254740993}`: "/tokens",
		`{"euro":1}`:                  "/euro",
		`{"usd":1,"reason":"` + strings.Repeat("x", 1025) + `"}`: "/reason",
	} {
		if a := p.wantCode(picket.CodeValidation, "POST", path, "operator", body, "Idempotency-Key",
			"k"); a.text("field") != field {
			t.Errorf("%.40s: field %s: %s", body, field, a.raw)
		} else if strings.Contains(a.text("message"), "number of dollars") != strings.Contains(body, "NaN") ||
			strings.Contains(body, "e400") &&
				!strings.Contains(a.text("remedy"), "such as 0.5, with up to nine decimals and up to 4000000.") {
			t.Errorf("%.40s: %s", body, a.raw)
		}
	}
	for _, id := range []string{"nothing", "task_1", "house:today", "run_" + aULID} {
		p.wantCode(picket.CodeValidation, "GET", "/api/v1/envelopes/"+id, "operator", "")
		p.wantCode(picket.CodeValidation, "POST", "/api/v1/envelopes/"+id+"/top-up", "operator", `{"usd":1}`,
			"Idempotency-Key", "k")
		if a := p.wantCode(picket.CodeValidation, "GET", "/api/v1/ledger?task="+id, "operator",
			""); a.text("field") != "?task" {
			t.Errorf("field: %s", a.raw)
		}
	}
	for _, id := range []string{"house", "house:2020-02-02", "task_" + aULID} { // nobody has set a cap
		p.wantCode(picket.CodeNotFound, "GET", "/api/v1/envelopes/"+id, "operator", "")
		p.wantCode(picket.CodeNotFound, "POST", "/api/v1/envelopes/"+id+"/top-up", "operator", `{"usd":1}`,
			"Idempotency-Key", "k")
	}
	p.wantCode(picket.CodeValidation, "GET", "/api/v1/ledger?limit=1001", "operator", "")
	if a := p.want(200, "GET", "/api/v1/envelopes/"+lease.TaskID, "operator",
		""); fmt.Sprint(a.body["granted"]) != "map[tokens:1e+06 usd:1]" {
		t.Errorf("a refused top-up has left money: %s", a.raw)
	}
}
