package sessions

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket/adapter/process"
)

// resident is one process that stays between prompts.
type resident struct {
	*session

	process process.Process // nil: none was started
	stdin   *os.File        // to the process; closed when it has ended
	lines   *lineWriter     // of its output
	output  *redactor       // of what it complains of
	unread  *os.File        // the other end, for what it has not read; nil: that is not known here

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

const (
	// maxLine bounds a line of the process, in bytes. An answer has at most 64 KiB; JSON may make each
	// of its bytes longer, and what an agent says beyond that is cut.
	maxLine = 4 << 20
	// endTimeout is what a process between prompts gets to end on its own.
	endTimeout = 2 * time.Second
	// noDeadline is when a process between prompts ends, from now on.
	noDeadline = 10 * 365 * 24 * time.Hour
)

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
	if !stop() { // the deadline came first
		<-r.process.Done()
	}
	r.killAt(r.k.cfg.clock() + noDeadline)
	if a.tooLong {
		more := fmt.Sprintf("the line has more than %d bytes", maxLine)
		return outcome{failed: reason("answer_too_long", more)}, false
	}
	p.answer(a.text)
	return outcome{}, false
}

// countUnread counts the bytes that a process has left unread at its end; -1: that is not known.
func (r *resident) countUnread() int {
	if r.unread == nil {
		return -1
	}
	r.stdin.Close()
	left, err := io.ReadAll(r.unread)
	if err != nil {
		return -1
	}
	return len(left)
}

// killAt bounds the life of the process, even if this one is stopped.
func (r *resident) killAt(at time.Duration) {
	if p, ok := r.process.(process.DeadlineKeeper); ok {
		p.KillAt(at)
	}
}

// lenient is for lines that a program has made without much care.
var lenient = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// start starts the process if none runs.
func (r *resident) start(ctx context.Context) error {
	if r.process != nil {
		select {
		case <-r.process.Done():
			r.close()
		default:
			return nil
		}
	}
	theirs, mine, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	job := r.job(0)
	r.output = &redactor{to: r.k.cfg.Output(r.id)}
	output, others := r.watch(r.output), &redactor{to: r.k.cfg.Output(r.id)}
	job.Stdin, job.Stderr = theirs, output
	lines := &lineWriter{most: maxLine, each: func(line []byte, whole bool) {
		if !r.read(line, whole) {
			_, _ = others.Write(append(line, '\n'))
		}
	}}
	job.Stdout = r.watch(lines)
	p, err := r.k.cfg.launcher(r.k.cfg.Command).Launch(ctx, job)
	if err != nil {
		theirs.Close()
		mine.Close()
		return err
	}
	r.process, r.stdin, r.unread, r.lines = p, mine, theirs, lines
	if runtime.GOOS == "windows" { // closing it there does not end a write
		theirs.Close()
		r.unread = nil
		return nil
	}
	r.k.work.Go(func() {
		<-p.Done()
		mine.Close() // ends a write
	})
	return nil
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

// close ends the process.
func (r *resident) close() {
	if r.process == nil {
		return
	}
	r.process.Terminate()
	end := time.AfterFunc(endTimeout, r.process.Kill)
	<-r.process.Done()
	end.Stop()
	r.output.Flush()
	r.stdin.Close()
	if r.unread != nil {
		r.unread.Close()
	}
	r.process, r.stdin, r.unread = nil, nil, nil
}
