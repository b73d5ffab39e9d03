package agents

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// parseRecorded has a preset's reader read what the agent itself once printed, and
// answers what came of it.
func parseRecorded(t *testing.T, p Preset,
	recorded string) (last lineFacts, used bool, reports []picket.UsageReport, sessions map[string]bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", recorded))
	if err != nil {
		t.Fatal(err)
	}
	read := p.spec().newParser()
	sessions = map[string]bool{}
	for line := range bytes.Lines(text) {
		f := read(bytes.TrimSpace(line))
		used = used || f.usedTool
		if f.usage != nil {
			reports = append(reports, *f.usage)
			last.usage = f.usage
		}
		if f.session != "" {
			sessions[f.session] = true
		}
		last.warning += f.warning
		last.fatal += f.fatal
		last.message += f.message
	}
	return last, used, reports, sessions
}

func TestWhatAgentsHaveUsedIsReadFromTheirOutput(t *testing.T) {
	dollars := func(s string) budget.Money {
		m, err := budget.ParseMoney(s)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, c := range []struct {
		preset   Preset
		recorded string
		want     picket.UsageReport
		reports  int
	}{
		{PresetClaude, "claude-done.jsonl", picket.UsageReport{Scope: "session", Tokens: 440, USD: dollars("0.0024")},
			1},
		// The session goes on: its figures do, too.
		{PresetClaude, "claude-resumed.jsonl",
			picket.UsageReport{Scope: "session", Tokens: 880, USD: dollars("0.0048")}, 1},
		{PresetCodex, "codex-done.jsonl", picket.UsageReport{Scope: "session", Tokens: 440}, 1},
		{PresetCodex, "codex-resumed.jsonl", picket.UsageReport{Scope: "session", Tokens: 880}, 1},
		// These two start from zero in each run, and OpenCode tells each step.
		{PresetGemini, "gemini-done.jsonl", picket.UsageReport{Tokens: 440}, 1},
		{PresetGemini, "gemini-resumed.jsonl", picket.UsageReport{Tokens: 440}, 1},
		{PresetOpenCode, "opencode-done.jsonl", picket.UsageReport{Tokens: 440, USD: dollars("0.0018")}, 4},
		{PresetOpenCode, "opencode-resumed.jsonl", picket.UsageReport{Tokens: 440, USD: dollars("0.0018")}, 4},
	} {
		t.Run(c.recorded, func(t *testing.T) {
			last, used, reports, sessions := parseRecorded(t, c.preset, c.recorded)
			if len(reports) != c.reports || len(sessions) != 1 {
				t.Fatalf("%d reports and the sessions %v, want %d and one", len(reports), sessions, c.reports)
			}
			got := *last.usage
			if !sessions[got.Session] || got.Session == "" {
				t.Errorf("the session %q is not that of the run", got.Session)
			}
			got.Session = ""
			if got != c.want {
				t.Errorf("read %+v, want %+v", got, c.want)
			}
			for i := 1; i < len(reports); i++ {
				if reports[i].Tokens < reports[i-1].Tokens || reports[i].USD < reports[i-1].USD {
					t.Errorf("the figures fall: %+v", reports)
				}
			}
			if !used || last.fatal+last.warning+last.message != "" {
				t.Errorf("used its tools: %v; complaints: %+v", used, last)
			}
		})
	}
}

func TestAnAgentThatHasNoToolsIsSeen(t *testing.T) {
	for _, c := range []struct {
		preset   Preset
		recorded string
		failed   string
		doubt    string
	}{
		{PresetClaude, "claude-notools.jsonl", "its MCP server picket is failed", ""},
		{PresetCodex, "codex-notools.txt", "", "Codex has not reached Picket's tools"},
		{PresetGemini, "gemini-notools.txt", "", "Gemini CLI has not reached Picket's tools"},
		{PresetGemini, "gemini-notools.jsonl", "", ""}, // its stdout does not tell
		{PresetOpenCode, "opencode-notools.jsonl", "", ""},
	} {
		last, used, _, _ := parseRecorded(t, c.preset, c.recorded)
		if used {
			t.Errorf("%s: tools were used", c.recorded)
		}
		if !strings.Contains(last.fatal, c.failed) || (c.failed == "") != (last.fatal == "") {
			t.Errorf("%s: failed: %q, want %q", c.recorded, last.fatal, c.failed)
		}
		if !strings.Contains(last.warning, c.doubt) || (c.doubt == "") != (last.warning == "") {
			t.Errorf("%s: doubt: %q, want %q", c.recorded, last.warning, c.doubt)
		}
	}
}

func TestAnAgentSaysWhyItStopped(t *testing.T) {
	last, _, reports, _ := parseRecorded(t, PresetClaude, "claude-broke.jsonl")
	if !strings.Contains(last.message, "Reached maximum budget ($0.001)") {
		t.Errorf("told %q", last.message)
	}
	if len(reports) != 1 || reports[0].USD != 6_000_000 {
		t.Errorf("the cost is read as %+v", reports)
	}
}

func TestLinesThatMeanNothingAreLeftAlone(t *testing.T) {
	for _, p := range Presets {
		if !p.CodingAgent() {
			continue
		}
		read := p.spec().newParser()
		for _, line := range []string{
			`{`, `null`, `[]`, `42`, `"result"`, `{}`, `{"type":7}`, `{"type":"result"}`,
			`{"type":"result","total_cost_usd":-1}`, `{"type":"result","total_cost_usd":"much"}`,
			`{"type":"result","total_cost_usd":1e300}`, `{"type":"result","stats":{"total_tokens":"x"}}`,
			`{"type":"turn.completed"}`, `{"type":"turn.completed","usage":{"input_tokens":1.5}}`,
			`{"type":"step_finish","part":{}}`, `plain words`, "\x00\xff",
		} {
			f := read([]byte(line))
			f.ended = false // a turn ends with a result of any kind
			if f != (lineFacts{}) {
				t.Errorf("%s reads %s as %+v", p, line, f)
			}
		}
	}
}

func TestMoneyIsReadToTheNanoDollar(t *testing.T) {
	for text, want := range map[string]budget.Money{
		"0":                       0,
		"0.0024000000000000002":   2_400_000,
		"0.000023999999999999997": 24_000,
		"1":                       1_000_000_000,
		"1e-9":                    1,
		"4e-10":                   0,
		"5.1e-10":                 1,
		"123.456789":              123_456_789_000,
	} {
		if got, ok := parseDollars(jsontext.Value(text)); !ok || got != want {
			t.Errorf("%s is read as %d, %v, want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "-1", "NaN", "1e400", "1000001", `"1"`, "null", "1e-400x"} {
		if got, ok := parseDollars(jsontext.Value(text)); ok {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}

// A step that OpenCode tells twice is counted once, and less than nothing is
// nothing.
func TestOpenCodeStepsAreCountedOnce(t *testing.T) {
	read := newOpenCodeParser()
	step := func(id, tokens, cost string) lineFacts {
		return read([]byte(`{"type":"step_finish","sessionID":"s","part":{"id":"` + id + `","tokens":{"input":` +
			tokens + `,"cache":{"read":1}},"cost":` + cost + `}}`))
	}
	step("a", "10", "0.1")
	if f := step("a", "10", "0.1"); f.usage != nil {
		t.Errorf("the same step again reads %+v", f.usage)
	}
	f := step("b", "-5", "-1")
	if f.usage == nil || f.usage.Tokens != 12 || f.usage.USD != 100_000_000 {
		t.Errorf("in all %+v, want 12 tokens and 0.1", f.usage)
	}
}
