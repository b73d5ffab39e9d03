package heartbeat

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/picket-dev/picket/internal/text"
)

// A Code names what is wrong with a file, or what was changed of it.
type Code string

// The codes of diagnostics.
const (
	CodeUnsupportedField     Code = "heartbeat_unsupported_field"
	CodeForbiddenField       Code = "heartbeat_forbidden_field" // OwnerSurface says where it belongs
	CodeReservedSection      Code = "heartbeat_reserved_section"
	CodeSecret               Code = "heartbeat_secret" // a token or a key of Picket
	CodeMalformedFrontMatter Code = "heartbeat_malformed_frontmatter"
	CodeInvalid              Code = "heartbeat_invalid" // a value of the wrong type, or out of bounds
	CodeInvalidMinInterval   Code = "heartbeat_invalid_min_interval"
	CodeInvalidTimezone      Code = "heartbeat_invalid_timezone"
	CodeInvalidTimeWindow    Code = "heartbeat_invalid_time_window"
	CodeInvalidEncoding      Code = "heartbeat_invalid_encoding" // not UTF-8, or with NUL bytes
	CodeBodyTooLarge         Code = "heartbeat_body_too_large"   // of a write
	CodeFileTooLarge         Code = "heartbeat_file_too_large"   // over MaxSource
	CodePathEscape           Code = "heartbeat_path_escape"      // for readers of files; Parse never gives it

	CodeFilesUnread Code = "heartbeat_files_unread" // of a wake: no server has the directory of the files

	// The codes of warnings. A file that has only these is valid.
	CodePreferenceClamped Code = "heartbeat_preference_clamped"
	CodeBodyTruncated     Code = "heartbeat_body_truncated"
)

// Codes lists every code of a diagnostic.
func Codes() []Code {
	return []Code{CodeUnsupportedField, CodeForbiddenField, CodeReservedSection, CodeSecret,
		CodeMalformedFrontMatter, CodeInvalid, CodeInvalidMinInterval, CodeInvalidTimezone,
		CodeInvalidTimeWindow, CodeInvalidEncoding, CodeBodyTooLarge, CodeFileTooLarge, CodePathEscape,
		CodeFilesUnread, CodePreferenceClamped, CodeBodyTruncated}
}

// A Severity says whether a diagnostic makes a file invalid.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"   // the file is invalid
	SeverityWarning Severity = "warning" // the file is valid
)

// A Diagnostic is one finding in a file. Messages never repeat a token or a key.
type Diagnostic struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	// Path is the field, such as preferences.active_hours[0].timezone. It is empty for the body
	// and for the file as a whole.
	Path string `json:"path"`
	// Line and Column are from 1, in characters; 0 for the file as a whole.
	Line   int `json:"line"`
	Column int `json:"column"`
	// OwnerSurface is where a forbidden field or heading belongs. It is empty for other codes.
	OwnerSurface string `json:"owner_surface"`
	SourcePath   string `json:"source_path"` // relative
}

// maxDiagnostics bounds the diagnostics of one file.
const maxDiagnostics = 50

// place is where a diagnostic points to.
type place struct {
	path         string
	line, column int
}

// findings collects the diagnostics of one file.
type findings struct {
	list       []Diagnostic
	errors     int
	sourcePath string
}

func newFindings(sourcePath string) *findings {
	if path.IsAbs(sourcePath) {
		sourcePath = path.Base(sourcePath)
	}
	return &findings{list: []Diagnostic{}, sourcePath: redact(sourcePath)}
}

func (f *findings) refuse(code Code, at place, format string, args ...any) {
	f.errors++
	f.add(Diagnostic{Code: code, Severity: SeverityError, Message: fmt.Sprintf(format, args...)}, at)
}

// refuseOwned refuses what belongs to another surface.
func (f *findings) refuseOwned(code Code, at place, surface, format string, args ...any) {
	f.errors++
	f.add(Diagnostic{Code: code, Severity: SeverityError, Message: fmt.Sprintf(format, args...),
		OwnerSurface: surface}, at)
}

func (f *findings) warn(code Code, at place, format string, args ...any) {
	f.add(Diagnostic{Code: code, Severity: SeverityWarning, Message: fmt.Sprintf(format, args...)}, at)
}

func (f *findings) add(d Diagnostic, at place) {
	if len(f.list) == maxDiagnostics {
		return
	}
	d.Message, d.Path = redact(d.Message), text.Shorten(redact(text.OneLine(at.path)), 256)
	d.Line, d.Column, d.SourcePath = at.line, at.column, f.sourcePath
	f.list = append(f.list, d)
}

// sorted returns the diagnostics in the order of the file.
func (f *findings) sorted() []Diagnostic {
	slices.SortStableFunc(f.list, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), strings.Compare(a.Path, b.Path))
	})
	return f.list
}

// quoted is a text of the file in a message.
func quoted(s string) string { return fmt.Sprintf("%q", text.Excerpt(redact(text.OneLine(s)), 60)) }
