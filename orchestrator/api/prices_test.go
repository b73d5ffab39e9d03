package api_test

import (
	"testing"

	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/api"
)

func TestPricesAreThoseInForce(t *testing.T) {
	list, err := budget.NewPriceList(map[string]budget.Price{
		"http_request": {
			Call:     1_000_000,
			PerUnit:  map[budget.Unit]budget.Money{budget.UnitByte: 1},
			Max:      10_000_000,
			ChargeOn: budget.ChargeOnSuccess,
		},
		"github_*": {},
	}, map[string]budget.TokenPrice{"claude-*": {Input: 3_000_000_000, Output: 15_000_000_000}})
	must(t, err)
	store, stop := rig.Memory()
	t.Cleanup(stop)
	p := newFixture(t, store, api.Config{Prices: func() *budget.PriceList { return list }})
	a := p.want(200, "GET", "/api/v1/prices", "reviewer", "")
	tools, _ := a.body["tools"].(map[string]any)
	request, _ := tools["http_request"].(map[string]any)
	if request["call"] != 0.001 || request["max"] != 0.01 || request["chargeOn"] != "success" || len(tools) != 2 ||
		a.text("version") != list.Version {
		t.Errorf("prices: %s", a.raw)
	}
	first := list.Version
	list, err = budget.NewPriceList(map[string]budget.Price{"github_*": {Call: 1}}, map[string]budget.TokenPrice{})
	must(t, err)
	if again := p.want(200, "GET", "/api/v1/prices", "reviewer", ""); again.text("version") == first ||
		again.text("version") != list.Version {
		t.Errorf("after a reload: %s", again.raw)
	}
	// Without a list there are no prices, and the answer is whole all the same.
	if a := newMemoryFixture(t).want(200, "GET", "/api/v1/prices", "operator", ""); a.body["tools"] == nil ||
		a.body["models"] == nil || a.text("version") == "" {
		t.Errorf("no prices: %s", a.raw)
	}
}
