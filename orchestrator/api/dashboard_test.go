package api_test

import (
	stdjson "encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/api"
)

// dashboard is what Grafana reads, as far as a scrape matters to it.
type dashboard struct {
	Templating struct {
		List []struct {
			Name  string `json:"name"`
			Type  string `json:"type"`
			Query string `json:"query"`
		} `json:"list"`
	} `json:"templating"`
	Panels []struct {
		ID      int    `json:"id"`
		Type    string `json:"type"`
		Title   string `json:"title"`
		GridPos struct {
			H, W, X, Y int
		} `json:"gridPos"`
		Targets []struct {
			Expr         string `json:"expr"`
			LegendFormat string `json:"legendFormat"`
		} `json:"targets"`
	} `json:"panels"`
}

var (
	inLegend    = regexp.MustCompile(`\{\{([a-z]+)\}\}`)
	labelValues = regexp.MustCompile(`^label_values\(([a-z_]+), ([a-z_]+)\)$`)
)

// Every expression, legend and variable of the dashboard names metrics and labels that a scrape has.
func TestTheDashboardNamesWhatThereIs(t *testing.T) {
	raw, err := os.ReadFile("../../deploy/grafana/picket.json")
	must(t, err)
	var board dashboard
	must(t, stdjson.Unmarshal(raw, &board))
	store, _ := rig.RealServer(t)
	p := newFixture(t, store, api.Config{})
	p.makeTraffic(store)
	there := readScrape(t, p.want(200, "GET", "/metrics", "", "").raw)
	for _, v := range board.Templating.List {
		m := labelValues.FindStringSubmatch(v.Query)
		switch {
		case v.Type != "query":
		case m == nil || there[m[1]] == nil || !slices.Contains(strings.Fields(there[m[1]].labels), m[2]):
			t.Errorf("the variable %s asks for %s", v.Name, v.Query)
		}
	}
	grafana := strings.NewReplacer(`=~"$namespace"`, `="default"`, "$__rate_interval", "5m")
	ids, queries := map[int]bool{}, 0
	for _, panel := range board.Panels {
		if ids[panel.ID] || panel.GridPos.X+panel.GridPos.W > 24 {
			t.Errorf("the panel %s has the id of another one, or is too wide", panel.Title)
		}
		ids[panel.ID] = true
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("the panel %s shows nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			queries++
			kept, err := checkExpression(grafana.Replace(target.Expr), there)
			if err != nil {
				t.Errorf("%s: %s: %v", panel.Title, target.Expr, err)
			}
			for _, m := range inLegend.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !slices.Contains(kept, m[1]) {
					t.Errorf("%s: the legend names %s, the result has %v", panel.Title, m[1], kept)
				}
			}
		}
	}
	if queries < 20 {
		t.Errorf("only %d queries", queries)
	}
}
