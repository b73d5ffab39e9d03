package attach

import (
	"bufio"
	"fmt"
	"io"

	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// answerPrompt asks a person at the terminal. Its reader, once started, stays until
// the process ends: a read of a terminal cannot be taken back.
type answerPrompt struct {
	interactive bool // there is a person at the other end
	open        bool // a question stands
	lines       chan string
	in          io.Reader
	out         io.Writer
	reading     bool
}

func newAnswerPrompt(in io.Reader, out io.Writer) answerPrompt {
	return answerPrompt{
		interactive: term.IsTerminal(in) && term.IsTerminal(out),
		lines:       make(chan string),
		in:          in,
		out:         out,
	}
}

func (p *answerPrompt) ask() {
	p.open = true
	fmt.Fprint(p.out, term.Painter(p.out).Bold("answer> "))
	if p.reading {
		return
	}
	p.reading = true
	in, lines := p.in, p.lines
	go func() {
		s := bufio.NewScanner(in)
		for s.Scan() {
			lines <- s.Text()
		}
		close(lines)
	}()
}

func (p *answerPrompt) close() {
	if p.open {
		p.open = false
		fmt.Fprintln(p.out)
	}
}
