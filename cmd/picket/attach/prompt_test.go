package attach

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
)

// TestEndOfInputAtAQuestion is a Ctrl-D at "answer>": nothing typed later could
// arrive, so the prompt goes and the command to answer with is told.
func TestEndOfInputAtAQuestion(t *testing.T) {
	var out bytes.Buffer
	cmd := newAttachTestRoot()
	cmd.SetErr(&out)
	a := &attachment{cmd: cmd, status: newStatusLine(&out), prompt: newAnswerPrompt(strings.NewReader(""), &out)}
	a.prompt.interactive = true
	a.task = picket.Task{
		State: picket.TaskHandoff,
		Handoff: &picket.Handoff{
			HandoffID: "handoff_1",
			State:     picket.HandoffOpen,
			Kind:      picket.HandoffQuestion,
			Question:  "Which?",
			Options:   []string{"this"},
		},
	}
	a.askQuestion()
	if _, open := <-a.prompt.lines; open {
		t.Fatal("an empty input had a line")
	}
	a.inputClosed()
	if got := out.String(); a.prompt.open || !strings.Contains(got, "the question stands") ||
		!strings.Contains(got, " handoff answer handoff_1 --option 1") {
		t.Errorf("prompt open %v, said %q", a.prompt.open, got)
	}
	a.told.handoff = ""
	if a.askQuestion(); a.prompt.open {
		t.Error("asked again, where nobody can answer")
	}
}

// An answer that is refused is asked for again while the question stands, and
// not when somebody else was first: the refusal has said who.
func TestARefusedAnswerIsAskedForWhileTheQuestionStands(t *testing.T) {
	for state, again := range map[string]bool{"open": true, "answered": false, "gone": false, "away": true} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			switch {
			case r.Method == http.MethodPost:
				w.WriteHeader(http.StatusConflict)
				io.WriteString(w,
					`{"code":"state_conflict","message":"ana has answered it: that","remedy":"see picket handoff show"}`)
			case state == "gone":
				w.WriteHeader(http.StatusNotFound)
				io.WriteString(w, `{"code":"not_found","message":"there is no such hand-off","remedy":"list them"}`)
			case state == "away":
				w.WriteHeader(http.StatusInternalServerError)
				io.WriteString(w, `{"code":"internal","message":"a bug","remedy":"report it"}`)
			default:
				fmt.Fprintf(w, `{"handoffId":"handoff_1","state":%q}`, state)
			}
		}))
		defer srv.Close()
		var out bytes.Buffer
		cmd := newAttachTestRoot()
		cmd.SetErr(&out)
		cmd.SetContext(t.Context())
		a := &attachment{
			cmd:    cmd,
			s:      cli.NewConnection(srv.URL, ""),
			status: newStatusLine(&out),
			prompt: newAnswerPrompt(strings.NewReader(""), &out),
		}
		a.prompt.interactive = true
		a.task = picket.Task{State: picket.TaskHandoff, Handoff: &picket.Handoff{
			HandoffID: "handoff_1", State: picket.HandoffOpen, Kind: picket.HandoffQuestion, Question: "Which?",
		}}
		a.askQuestion()
		a.sendAnswer("this")
		asked := strings.Count(out.String(), "the agent asks: Which?")
		if !strings.Contains(out.String(), "not answered: ana has answered it: that") || a.prompt.open != again ||
			(asked == 2) != again {
			t.Errorf("%s: prompt open %v, said %q", state, a.prompt.open, out.String())
		}
		a.askQuestion()
		if n := strings.Count(out.String(), "the agent asks: Which?"); n != asked {
			t.Errorf("%s: asked once more by the next look: %q", state, out.String())
		}
	}
}
