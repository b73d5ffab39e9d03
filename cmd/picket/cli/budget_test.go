package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// envelopeWith is an envelope of a dollar in which so much was spent.
func envelopeWith(id, state string, spent budget.Money, below ...picket.EnvelopeState) picket.EnvelopeState {
	dollar := budget.Envelope{USD: 1_000_000_000}
	return picket.EnvelopeState{
		ID:       id,
		State:    state,
		Envelope: dollar,
		Children: below,
		Calls:    []picket.OpenCall{},
		Account: budget.Account{
			Granted: dollar,
			Spent:   budget.Envelope{USD: spent, Tokens: 5},
			Held:    budget.Envelope{USD: spent / 10},
		},
	}
}

// runAgainstAnswers runs a command against a server that answers each path with a value.
func runAgainstAnswers(t *testing.T, answers map[string]any, args ...string) (stdout, stderr string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok {
			answer = picket.Refuse(picket.CodeNotFound, "", "there is no %s", r.URL.Path)
			w.WriteHeader(http.StatusNotFound)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.MarshalWrite(w, answer)
	}))
	defer server.Close()
	t.Setenv("PICKET_URL", server.URL)
	t.Setenv("PICKET_API_KEY", "pkk_x")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	var out, errOut bytes.Buffer
	root := newTestRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errOut)
	if err := root.Execute(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out.String(), errOut.String()
}

// What closed subtasks have spent is spent in those above them, shown or not,
// and an answer that was cut off reports it.
func TestSubtaskSpendingIsCounted(t *testing.T) {
	const cent = budget.Money(10_000_000)
	tree := envelopeWith("house:2026-04-11", "open", 0,
		envelopeWith("a", "open", 30*cent, envelopeWith("b", "closed", 20*cent)), envelopeWith("c", "closed", 10*cent))
	answers := map[string]any{"/api/v1/envelopes/house": &tree}
	out, errOut := runAgainstAnswers(t, answers, "budget", "show", "--open")
	rows := strings.Split(strings.TrimSpace(out), "\n")
	if len(rows) != 3 || strings.Join(strings.Fields(rows[1])[:5], " ") != "house:2026-04-11 a day $0.60 $0.06" ||
		strings.Join(strings.Fields(rows[2])[:5], " ") != "· a open $0.50 $0.05" || errOut != "" {
		t.Errorf("%s%s", out, errOut)
	}
	out, _ = runAgainstAnswers(t, answers, "budget", "show", "-o", "json")
	if !strings.Contains(out, `"spent": {`) || strings.Contains(out, "0.6") {
		t.Errorf("the answer of the server is changed: %s", out)
	}
	for i := range picket.MaxEnvelopes - 4 {
		tree.Children = append(tree.Children, envelopeWith("t"+strconv.Itoa(i), "closed", 0))
	}
	if _, errOut = runAgainstAnswers(t, answers, "budget", "show", "--open"); !strings.Contains(errOut,
		"only the first 500 envelopes are shown and counted in SPENT and HELD;") {
		t.Errorf("nothing is said of what was cut off: %q", errOut)
	}
	tree.SpentInAll = &budget.Envelope{USD: 700 * cent} // the server knows it all
	out, errOut = runAgainstAnswers(t, answers, "budget", "show", "--open")
	if row := strings.Split(out, "\n")[1]; !strings.Contains(row, " $7.00 ") ||
		!strings.Contains(errOut, "counted in HELD;") {
		t.Errorf("%s: %q", row, errOut)
	}
}

// Without a limit a day the latest trees are shown, each as a tree.
func TestLatestBudgetTrees(t *testing.T) {
	root := "r"
	page := picket.TaskPage{Tasks: []picket.Task{
		{TaskID: "b", Root: "r", Parent: &root, State: picket.TaskQueued},
		{TaskID: "s", Root: "s", State: picket.TaskCompleted, Spent: budget.Envelope{USD: 1}},
		{TaskID: "r", Root: "r", State: picket.TaskLeased},
	}}
	tree := envelopeWith("r", "open", 0, envelopeWith("b", "open", 1_000_000_000))
	answers := map[string]any{"/api/v1/tasks": page, "/api/v1/envelopes/r": tree}
	if out, _ := runAgainstAnswers(t, answers, "budget", "show", "-o", "name"); out != "r\nb\ns\n" {
		t.Errorf("shown are %q", out)
	}
	if out, _ := runAgainstAnswers(t, answers, "budget", "show"); !strings.Contains(out, "r         open    $1.00") ||
		!strings.Contains(out, "s         closed  $0.000000001") {
		t.Errorf("%s", out)
	}
	if out, _ := runAgainstAnswers(t, answers, "budget", "show", "-o", "json"); strings.Count(out, `"id": "b"`) != 1 {
		t.Errorf("%s", out)
	}
}
