package main

import (
	"bufio"
	"fmt"
	"io"
)

// prompt asks a person at the terminal. Its reader, once started, stays until
// the process ends: a read of a terminal cannot be taken back.
type prompt struct {
	possible bool // there is a person at the other end
	open     bool // a question stands
	lines    chan string
	in       io.Reader
	out      io.Writer
	reading  bool
}

func newPrompt(in io.Reader, out io.Writer) prompt {
	return prompt{possible: isTerminal(in) && isTerminal(out), lines: make(chan string), in: in, out: out}
}

func (p *prompt) ask() {
	p.open = true
	fmt.Fprint(p.out, painter(p.out).bold("answer> "))
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

func (p *prompt) close() {
	if p.open {
		p.open = false
		fmt.Fprintln(p.out)
	}
}
