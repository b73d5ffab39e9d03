package picket

import (
	stdjson "encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestSpecDefaults(t *testing.T) {
	s := TaskSpec{Title: "x", Needs: []string{"go", "c", "go"}}
	if err := s.Normalize(); err != nil {
		t.Fatal(err)
	}
	if *s.Priority != 5 || *s.LeaseWindowSeconds != 300 || *s.Retry.MaxAttempts != 3 || *s.Retry.BackoffSeconds != 10 ||
		s.Escalate != EscalateHuman || s.Review != ReviewByHuman || s.OnExit != OnExitFail || s.TimeoutSeconds != nil {
		t.Errorf("defaults %+v", s)
	}
	if strings.Join(s.Needs, " ") != "c go" {
		t.Errorf("needs %v", s.Needs)
	}
	if s.BudgetEnvelope.Tokens != 1_000_000 || s.BudgetEnvelope.USD.String() != "1" {
		t.Errorf("envelope %+v", s.BudgetEnvelope)
	}
}

// Two requests may share a policy: the defaults of the one are not written into it.
func TestNormalizeLeavesWhatIsSharedAlone(t *testing.T) {
	retry, thresholds := &Retry{On: []ExitClass{ExitTimeout, ExitCrash}}, &Thresholds{}
	s, r := TaskSpec{Title: "x", Retry: retry}, Registration{Heartbeat: thresholds}
	if err := errors.Join(s.Normalize(), r.Normalize()); err != nil {
		t.Fatal(err)
	}
	if s.Retry.MaxAttempts == nil || r.Heartbeat.IntervalSeconds == nil {
		t.Errorf("no defaults in %+v and %+v", s.Retry, r.Heartbeat)
	}
	if retry.MaxAttempts != nil || retry.On[0] != ExitTimeout || thresholds.IntervalSeconds != nil {
		t.Errorf("shared values were changed: %+v, %+v", retry, thresholds)
	}
}

func TestSpecRefusals(t *testing.T) {
	n := func(v int) *int { return &v }
	for field, c := range map[string]struct {
		spec TaskSpec
		code Code
	}{
		"/title":                {TaskSpec{Title: "  "}, CodeValidation},
		"/role":                 {TaskSpec{Title: "x", Role: "a b"}, CodeValidation},
		"/agent":                {TaskSpec{Title: "x", Agent: "{a}"}, CodeValidation},
		"/needs/1":              {TaskSpec{Title: "x", Needs: []string{"ok", "a,b"}}, CodeValidation},
		"/priority":             {TaskSpec{Title: "x", Priority: n(10)}, CodeValidation},
		"/leaseWindowSeconds":   {TaskSpec{Title: "x", LeaseWindowSeconds: n(-1)}, CodeValidation},
		"/timeoutSeconds":       {TaskSpec{Title: "x", TimeoutSeconds: n(0)}, CodeValidation},
		"/retry/maxAttempts":    {TaskSpec{Title: "x", Retry: &Retry{MaxAttempts: n(101)}}, CodeValidation},
		"/retry/on/0":           {TaskSpec{Title: "x", Retry: &Retry{On: []ExitClass{"success"}}}, CodeValidation},
		"/retry/backoffSeconds": {TaskSpec{Title: "x", Retry: &Retry{BackoffSeconds: n(3601)}}, CodeValidation},
		"/escalate":             {TaskSpec{Title: "x", Escalate: "never"}, CodeValidation},
		"/onExit":               {TaskSpec{Title: "x", OnExit: "maybe"}, CodeValidation},
		"/fixes":                {TaskSpec{Title: "x", Fixes: "task_1"}, CodeValidation},
		"/labels/a b":           {TaskSpec{Title: "x", Labels: map[string]string{"a b": "c"}}, CodeValidation},
		"/labels/a":             {TaskSpec{Title: "x", Labels: map[string]string{"a": "{x}"}}, CodeValidation},
		"/review":               {TaskSpec{Title: "x", Review: "parent"}, CodeValidation},
		"/stallAfterSeconds":    {TaskSpec{Title: "x", StallAfterSeconds: n(1)}, CodeValidation},
		"/input": {TaskSpec{Title: "x", Input: stdjson.RawMessage(strings.Repeat("1", MaxPayload+1))},
			CodeTooLarge},
	} {
		var e *Error
		if err := c.spec.Normalize(); !errors.As(err, &e) || e.Code != c.code || e.Facts["field"] != field ||
			e.Remedy == "" {
			t.Errorf("%s: %v %+v", field, err, e)
		}
	}
}

func TestEveryCodeHasAStatusAndATitle(t *testing.T) {
	for _, c := range Codes() {
		if c.Status() < 400 || c.Status() > 599 || c.Title() == "Error" {
			t.Errorf("%s: %d %s", c, c.Status(), c.Title())
		}
		if err := Refuse(c, "do", "it"); !errors.Is(err, c) || CodeOf(err) != c {
			t.Errorf("%s is not found in its own error", c)
		}
	}
}

func TestInstant(t *testing.T) {
	at := InstantOf(time.Date(2026, 4, 11, 10, 42, 17, 0, time.UTC))
	b, err := at.MarshalJSON()
	if err != nil || string(b) != `"2026-04-11T10:42:17.000Z"` {
		t.Errorf("%s %v", b, err)
	}
	for text, want := range map[string]Instant{
		`"2026-04-11T12:42:17+02:00"`:   at,
		`"2026-04-11T10:42:17.000999Z"`: at,
		`null`:                          0,
	} {
		var got Instant
		if err := got.UnmarshalJSON([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	for _, text := range []string{`""`, `1`, `"tomorrow"`, `"0001-01-01T00:00:00Z"`, `"`} {
		var got Instant
		if err := got.UnmarshalJSON([]byte(text)); err == nil {
			t.Errorf("%s is taken as %v", text, got)
		}
	}
}
