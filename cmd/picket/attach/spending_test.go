package attach

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

func spentTask(usd, of budget.Money, tokens, ofTokens int64) picket.Task {
	return picket.Task{
		BudgetEnvelope: budget.Envelope{USD: of, Tokens: ofTokens}, Spent: budget.Envelope{USD: usd, Tokens: tokens},
		Available: budget.Envelope{USD: of - usd, Tokens: ofTokens - tokens},
	}
}

func TestMoneyInTheLiveLine(t *testing.T) {
	const cent = budget.Money(10_000_000)
	began := time.Unix(1000, 0)
	for _, tc := range []struct {
		name  string
		after time.Duration
		task  picket.Task
		want  string
	}{
		{"nothing spent", time.Minute, spentTask(0, 50*cent, 0, 1000), ""},
		{"too early for a forecast", 5 * time.Second, spentTask(31*cent, 50*cent, 0, 1000), "$0.31 of 0.50"},
		{"at this pace", 100 * time.Second, spentTask(25*cent, 50*cent, 0, 1000), "$0.25 of 0.50, lasts 1m40s"},
		{"tokens run out first", 100 * time.Second, spentTask(1*cent, 50*cent, 900, 1000), "$0.01 of 0.50, lasts 11s"},
		{"tokens alone", 100 * time.Second, spentTask(0, 50*cent, 500, 1000), "500 of 1000 tokens, lasts 1m40s"},
		{"used up", 100 * time.Second, spentTask(50*cent, 50*cent, 0, 1000), "$0.50 of 0.50, lasts 0s"},
		{"overdrawn", 100 * time.Second, spentTask(60*cent, 50*cent, 0, 1000), "$0.60 of 0.50, lasts 0s"},
		{"less than a cent", time.Second, spentTask(123_000, 50*cent, 0, 1000), "$0.00012 of 0.50"},
		{"hardly anything", 100 * time.Second, spentTask(1, 50*cent, 0, 1000), "$1e-09 of 0.50"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s spending
			s.text(spentTask(0, 50*cent, 0, 1000), began)
			if got := s.text(tc.task, began.Add(tc.after)); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// What was spent before the watch began says nothing about the pace.
func TestForecastCountsFromTheFirstLook(t *testing.T) {
	var s spending
	began := time.Unix(1000, 0)
	s.text(spentTask(400_000_000, 1_000_000_000, 0, 1), began)
	if got := s.text(spentTask(500_000_000, 1_000_000_000, 0, 1),
		began.Add(20*time.Second)); got != "$0.50 of 1.00, lasts 1m40s" {
		t.Error(got)
	}
}

func TestTopUpCommandCoversTheShortage(t *testing.T) {
	for _, tc := range []struct {
		data string
		want string
	}{
		{`{"need":{"tokens":0,"usd":0.3},"available":{"tokens":1000,"usd":0.1}}`, "picket budget top-up t --usd 0.20"},
		{`{"need":{"tokens":0,"usd":0.3},"available":{"tokens":1000,"usd":0.299999999}}`,
			"picket budget top-up t --usd 0.01"},
		{`{"need":{"tokens":50,"usd":0},"available":{"tokens":20,"usd":1}}`, "picket budget top-up t --tokens 30"},
		{`{"need":{"tokens":50,"usd":1},"available":{"tokens":-20,"usd":-0.5}}`,
			"picket budget top-up t --usd 1.50 --tokens 70"},
		{`{"need":{"tokens":0,"usd":0.1},"available":{"tokens":-5,"usd":1}}`, "picket budget top-up t --tokens 5"},
	} {
		var d cli.MoneyData
		if err := json.Unmarshal([]byte(tc.data), &d); err != nil {
			t.Fatal(err)
		}
		if got := picket.TopUpCommand("t", d.Lacked()); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.data, got, tc.want)
		}
	}
}

func TestABudgetIsNotBelowZero(t *testing.T) {
	cmd := NewRun()
	if err := cmd.ParseFlags([]string{"--budget", "-1"}); err != nil {
		t.Fatal(err)
	}
	var spec picket.TaskSpec
	err := cli.BudgetOf(settings.Settings{}, cmd, &spec)
	if err == nil || exit.Code(err) != 2 || !strings.Contains(err.Error(), "--budget -1 is below zero") ||
		spec.BudgetEnvelope != nil {
		t.Errorf("--budget -1: %v, envelope %+v", err, spec.BudgetEnvelope)
	}
}
