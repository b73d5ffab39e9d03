package api_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/api"
)

// ruleFile is what Prometheus reads, as far as alerts use it.
type ruleFile struct {
	Groups []struct {
		Name  string      `yaml:"name"`
		Rules []alertRule `yaml:"rules"`
	} `yaml:"groups"`
}

type alertRule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// documentedAlerts reads the block of rules.
func documentedAlerts(t testing.TB) (rules []alertRule, block string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations/monitoring.md")
	must(t, err)
	_, block, found := strings.Cut(string(text), "\n```yaml alerts\n")
	block, _, closed := strings.Cut(block, "\n```\n")
	if !found || !closed {
		t.Fatal("docs/operations/monitoring.md has no block of alerts")
	}
	var file ruleFile
	must(t, yaml.UnmarshalWithOptions([]byte(block), &file, yaml.Strict()))
	for _, g := range file.Groups {
		if g.Name == "" {
			t.Error("a group has no name")
		}
		rules = append(rules, g.Rules...)
	}
	return rules, block
}

var (
	alertName = regexp.MustCompile(`^Picket[A-Z][A-Za-z]+$`)
	inSummary = regexp.MustCompile(`\{\{ \$labels\.([a-z]+) \}\}`)
)

// Every alert is one that a scrape can set off: it names metrics and labels
// that there are, with values that there are, and it says why, what to do and
// which command helps.
func TestAlertsNameWhatThereIs(t *testing.T) {
	store, _ := rig.RealServer(t)
	p := newFixture(t, store, api.Config{})
	p.makeTraffic(store)
	there := readScrape(t, p.want(200, "GET", "/metrics", "", "").raw)
	rules, block := documentedAlerts(t)
	var seen []string
	for _, r := range rules {
		if !alertName.MatchString(r.Alert) || slices.Contains(seen, r.Alert) {
			t.Errorf("%q is not a name of an alert, or there twice", r.Alert)
		}
		seen = append(seen, r.Alert)
		if _, err := time.ParseDuration(r.For); r.For != "" && err != nil {
			t.Errorf("%s: for: %v", r.Alert, err)
		}
		if s := r.Labels["severity"]; len(r.Labels) != 1 || s != "page" && s != "ticket" {
			t.Errorf("%s: labels %v", r.Alert, r.Labels)
		}
		for _, name := range []string{"summary", "why", "do", "command"} {
			if r.Annotations[name] == "" {
				t.Errorf("%s does not say %s", r.Alert, name)
			}
		}
		if len(r.Annotations) != 4 {
			t.Errorf("%s: annotations %v", r.Alert, r.Annotations)
		}
		kept, err := checkAlert(r.Expr, there)
		if err != nil {
			t.Errorf("%s: %s: %v", r.Alert, r.Expr, err)
			continue
		}
		for _, m := range inSummary.FindAllStringSubmatch(r.Annotations["summary"], -1) {
			if !slices.Contains(kept, m[1]) {
				t.Errorf("%s: the summary names the label %s, the expression keeps %v", r.Alert, m[1], kept)
			}
		}
	}
	if len(rules) < 15 {
		t.Errorf("only %d alerts", len(rules))
	}
	if tool, err := exec.LookPath("promtool"); err == nil {
		file := filepath.Join(t.TempDir(), "rules.yaml")
		must(t, os.WriteFile(file, []byte(block), 0o600))
		if out, err := exec.Command(tool, "check", "rules", file).CombinedOutput(); err != nil {
			t.Errorf("promtool: %v\n%s", err, out)
		}
	}
}

// The check bites.
func TestWrongExpressionsAreSeen(t *testing.T) {
	there := map[string]*metricFamily{
		"picket_leases": {
			kind:   "gauge",
			labels: "namespace state",
			values: map[string]string{`picket_leases{namespace="d",state="due"}`: "0"},
		},
		"picket_grants_total": {
			kind:   "counter",
			labels: "namespace",
			values: map[string]string{`picket_grants_total{namespace="d"}`: "0"},
		},
		"picket_renew_seconds": {
			kind:   "histogram",
			labels: "namespace",
			values: map[string]string{
				`picket_renew_seconds_bucket{namespace="d",le="0.1"}`: "0",
				`picket_renew_seconds_count{namespace="d"}`:           "0",
			},
		},
	}
	for expr, good := range map[string]bool{
		`max by (namespace) (picket_leases{state="due"}) > 0`:                                          true,
		`sum(rate(picket_grants_total[5m])) == 0`:                                                      true,
		`histogram_quantile(0.9, sum by (le) (rate(picket_renew_seconds_bucket[5m]))) > 1`:             true,
		`rate(picket_renew_seconds_bucket{le="0.1"}[5m]) / rate(picket_renew_seconds_count[5m]) > 0.5`: true,
		`picket_leases{state=~"due|due"} > 0`:                                                          true,
		`picket_lease > 0`:                                                                             false,
		`picket_leases{state="lost"} > 0`:                                                              false,
		`picket_leases{state=~"due|lost"} > 0`:                                                         false,
		`picket_leases{status="due"} > 0`:                                                              false,
		`max by (status) (picket_leases) > 0`:                                                          false,
		`max by (namespace) (picket_leases > 0`:                                                        false,
		`picket_leases) > (0`:                                                                          false,
		`rate(picket_leases[5m]) > 0`:                                                                  false,
		`picket_grants_total > 0`:                                                                      false,
		`delta(picket_grants_total[5m]) > 0`:                                                           false,
		`rate(picket_grants_total) > 0`:                                                                false,
		`rate(picket_grants_total[5 m]) > 0`:                                                           false,
		`histogram_quantile(0.9, sum by (namespace) (rate(picket_renew_seconds_bucket[5m]))) > 1`:      false,
		`picket_renew_seconds > 1`:                                                                     false,
		`picket_renew_seconds_bucket{le="0.3"} > 1`:                                                    false,
		`mean(picket_leases) > 0`:                                                                      false,
		`max by (namespace) (picket_leases)`:                                                           false,
		`max by (state) (max by (namespace) (picket_leases)) > 0`:                                      false,
		`sum(picket_leases) by (state) > 0`:                                                            false,
	} {
		if _, err := checkAlert(expr, there); (err == nil) != good {
			t.Errorf("%s: %v", expr, err)
		}
	}
}
