package main

import (
	"io"
	"os"

	"github.com/charmbracelet/x/term"
)

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

// terminalWidth is the width of the terminal, 80 where there is none.
func terminalWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(f.Fd()); err == nil && width > 20 {
			return width
		}
	}
	return 80
}

// terminalHeight is the height of the terminal, 24 where there is none.
func terminalHeight(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if _, height, err := term.GetSize(f.Fd()); err == nil && height > 3 {
			return height
		}
	}
	return 24
}

// tableWidth is how many columns a table may have on a stream; elsewhere than on a
// terminal it is not limited.
func tableWidth(w io.Writer) (int, bool) {
	if b, ok := w.(*viewBuffer); ok {
		w = b.target
	}
	return terminalWidth(w), isTerminal(w)
}

// paint colours text for a terminal and leaves it alone elsewhere.
type paint bool

// painter answers the paint for a stream. NO_COLOR turns colours off.
func painter(w io.Writer) paint {
	if b, ok := w.(*viewBuffer); ok {
		w = b.target
	}
	return paint(isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

func (p paint) with(code, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p paint) bold(text string) string { return p.with("1", text) }
func (p paint) dim(text string) string  { return p.with("2", text) }
func (p paint) bad(text string) string  { return p.with("31;1", text) }
func (p paint) good(text string) string { return p.with("32", text) }
func (p paint) warn(text string) string { return p.with("33", text) }

// state colours the name of a task's state.
func (p paint) state(text string) string {
	switch text {
	case "completed", "ok", "approve", "active":
		return p.good(text)
	case "review", "handoff", "warn", "open", "unhealthy", "draining":
		return p.warn(text)
	case "failed", "rejected", "fail", "dead":
		return p.bad(text)
	case "leased", "running":
		return p.with("36", text)
	case "cancelled", "deregistered":
		return p.dim(text)
	}
	return text
}
