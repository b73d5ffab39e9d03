package term

import (
	"bytes"
	"io"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
)

// ViewBuffer holds what is shown until it is compared with the last look. It
// is as wide and as coloured as where it goes.
type ViewBuffer struct {
	*bytes.Buffer
	Target io.Writer
	Notes  bytes.Buffer   // what is for stderr
	Answer jsontext.Value // what it shows, where that is one answer
}

// NoteAnswer notes for --watch what a view shows.
func NoteAnswer(w io.Writer, raw jsontext.Value) {
	if b, ok := w.(*ViewBuffer); ok {
		b.Answer = raw
	}
}

// NotesWriter is where a view's words for people go.
func NotesWriter(cmd *cobra.Command, w io.Writer) io.Writer {
	if b, ok := w.(*ViewBuffer); ok {
		return &b.Notes
	}
	return cmd.ErrOrStderr()
}
