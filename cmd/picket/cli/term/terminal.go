// Package term writes for a person at a terminal and for scripts: safe text,
// colours, tables, output formats, durations and words quoted for a shell.
package term

import (
	"io"
	"os"

	"github.com/charmbracelet/x/term"
)

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

// TerminalWidth is the width of the terminal, 80 where there is none.
func TerminalWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(f.Fd()); err == nil && width > 20 {
			return width
		}
	}
	return 80
}

// TerminalHeight is the height of the terminal, 24 where there is none.
func TerminalHeight(w io.Writer) int {
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
	if b, ok := w.(*ViewBuffer); ok {
		w = b.Target
	}
	return TerminalWidth(w), IsTerminal(w)
}

// Paint colours text for a terminal and leaves it alone elsewhere.
type Paint bool

// Painter answers the paint for a stream. NO_COLOR turns colours off.
func Painter(w io.Writer) Paint {
	if b, ok := w.(*ViewBuffer); ok {
		w = b.Target
	}
	return Paint(IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

func (p Paint) with(code, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold makes text stand out.
func (p Paint) Bold(text string) string { return p.with("1", text) }

// Dim is for text that matters less than the text around it.
func (p Paint) Dim(text string) string { return p.with("2", text) }

// Bad is for failures: red.
func (p Paint) Bad(text string) string { return p.with("31;1", text) }

// Good is for success: green.
func (p Paint) Good(text string) string { return p.with("32", text) }

// Warn is for what needs a look: yellow.
func (p Paint) Warn(text string) string { return p.with("33", text) }

// State colours the name of a task's state.
func (p Paint) State(text string) string {
	switch text {
	case "completed", "ok", "approve", "active":
		return p.Good(text)
	case "review", "handoff", "warn", "open", "unhealthy", "draining":
		return p.Warn(text)
	case "failed", "rejected", "fail", "dead":
		return p.Bad(text)
	case "leased", "running":
		return p.with("36", text)
	case "cancelled", "deregistered":
		return p.Dim(text)
	}
	return text
}
