package heartbeat

import (
	"strings"

	"github.com/picket-dev/picket"
)

// MaxInstructions bounds a file AGENT.md, in bytes.
const MaxInstructions = picket.MaxInstructions

// ParseInstructions reads a file AGENT.md, the standing instructions of an agent name. The text has the line end LF and
// no blank space at its ends. If there is a diagnostic, the file is refused and the text is empty. sourcePath is
// relative, for the diagnostics.
func ParseInstructions(source []byte, sourcePath string) (text string, refused []Diagnostic) {
	f := newFindings(sourcePath)
	if len(source) > MaxInstructions {
		f.refuse(CodeFileTooLarge, place{}, "the file has %d bytes, at most %d are allowed", len(source), MaxInstructions)
		return "", f.sorted()
	}
	text, ok := f.normalize(source)
	if ok {
		f.secretsIn(text)
	}
	if f.errors > 0 {
		return "", f.sorted()
	}
	return strings.TrimSpace(text), nil
}
