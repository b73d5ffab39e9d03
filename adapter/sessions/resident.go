package sessions

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// resident is one process of a command that stays between prompts.
type resident struct {
	keptProcess

	lines *lineWriter // of its output

	waiting  sync.Mutex // guards what follows
	promptID string     // whose answer is waited for; empty: none
	answers  chan residentAnswer
}

// promptLine is what the process reads.
type promptLine struct {
	Type     string `json:"type"` // prompt
	PromptID string `json:"promptId"`
	Text     string `json:"text"`
	// Capability is the session capability, valid until the prompt ends, and ContextURL what answers the
	// context of the agent with it. Empty: the server admits none.
	Capability string `json:"capability,omitempty"`
	ContextURL string `json:"contextUrl,omitempty"`
	// Instructions are the standing ones of the operators, as they are now. Empty: there are none.
	Instructions string `json:"instructions,omitempty"`
}

// answerLine is what it answers. What else is in it does not count.
type answerLine struct {
	Type     string `json:"type"` // answer
	PromptID string `json:"promptId"`
	Text     string `json:"text"`
}

// residentAnswer is the answer to a prompt.
type residentAnswer struct {
	text    string
	tooLong bool // it could not be read
}

// maxLine bounds a line of the process, in bytes. An answer has at most 64 KiB; JSON may make each
// of its bytes longer, and what an agent says beyond that is cut.
const maxLine = 4 << 20

func (r *resident) prompt(ctx context.Context, p prompt) outcome {
	line, err := json.Marshal(promptLine{Type: "prompt", PromptID: p.id, Text: p.text,
		Capability: p.access.capability.Reveal(), ContextURL: p.access.contextURL(), Instructions: p.instructions})
	if err != nil {
		return cannotStart(err)
	}
	for again := false; ; again = true {
		if err := r.start(ctx); err != nil {
			return cannotStart(err)
		}
		out, untouched := r.ask(ctx, p, append(line, '\n'))
		if !untouched || again || ctx.Err() != nil {
			return out
		}
	}
}

// ask gives a prompt to the process. If the process ends before it has read anything of the prompt,
// untouched is true: another one may be asked.
func (r *resident) ask(ctx context.Context, p prompt, line []byte) (out outcome, untouched bool) {
	r.killAt(p.killAt)
	answered := r.expect(p.id)
	defer r.expect("")
	stop := context.AfterFunc(ctx, r.process.Kill)
	defer stop()
	n, _ := r.stdin.Write(line) // fails only if the process ends
	var a residentAnswer
	select {
	case a = <-answered:
	case <-r.process.Done():
		r.lines.flush()
		select {
		case a = <-answered: // its last words
		default:
			return agentEnded(r.process.Exit(), ""), r.countUnread() == n
		}
	}
	r.stay(stop)
	if a.tooLong {
		more := fmt.Sprintf("the line has more than %d bytes", maxLine)
		return outcome{failed: reason("answer_too_long", more)}, false
	}
	p.answer(a.text)
	return outcome{}, false
}

// lenient is for lines that a program has made without much care.
var lenient = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// start starts the process if none runs.
func (r *resident) start(ctx context.Context) error {
	if r.runs() {
		return nil
	}
	r.complained = &redactor{to: r.k.cfg.Output(r.id)}
	output, others := r.watch(r.complained), &redactor{to: r.k.cfg.Output(r.id)}
	r.lines = &lineWriter{most: maxLine, each: func(line []byte, whole bool) {
		if !r.read(line, whole) {
			_, _ = others.Write(append(line, '\n'))
		}
	}}
	job := r.job(0)
	job.Stdout, job.Stderr = r.watch(r.lines), output
	return r.launch(ctx, r.k.cfg.Command, job)
}

// expect says whose answer is waited for.
func (r *resident) expect(promptID string) <-chan residentAnswer {
	r.waiting.Lock()
	defer r.waiting.Unlock()
	r.promptID, r.answers = promptID, make(chan residentAnswer, 1)
	return r.answers
}

// read takes a line of the process, and reports whether it was the answer.
func (r *resident) read(line []byte, whole bool) bool {
	r.waiting.Lock()
	defer r.waiting.Unlock()
	if r.promptID == "" {
		return false
	}
	var in answerLine
	switch {
	case !whole:
		start := line[:min(len(line), 512)]
		if !bytes.Contains(start, []byte(`"answer"`)) || !bytes.Contains(start, []byte(r.promptID)) {
			return false
		}
	case json.Unmarshal(line, &in, lenient) != nil || in.Type != "answer" || in.PromptID != r.promptID:
		return false
	}
	r.answers <- residentAnswer{text: in.Text, tooLong: !whole}
	r.promptID = ""
	return true
}
