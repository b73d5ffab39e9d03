package heartbeat

import (
	"time"

	"github.com/picket-dev/picket"
)

// A Mode says what a file is parsed for.
type Mode int

// The modes.
const (
	// ModeFile reads a file that exists. A body over max_body_bytes is cut where it is quoted.
	ModeFile Mode = iota
	// ModeWrite checks what somebody wants to store. A body over max_body_bytes is refused.
	ModeWrite
)

// Options are what a file is parsed with.
type Options struct {
	Settings Settings
	Mode     Mode
	// SourcePath is the relative path of the file, for diagnostics. Of an absolute path only the
	// last element is kept.
	SourcePath string
}

// Bounds of a file.
const (
	// MaxSource is the largest file in bytes that is looked at. A larger one is refused unread.
	MaxSource      = picket.MaxPolicyFile
	MaxFrontMatter = 16 << 10 // bytes between the lines ---
	MaxSummary     = 500      // characters
	MaxWindows     = 32       // of active_hours and quiet_windows together
)

// A ContextPart is a part of get_context that a wake prompt can quote.
type ContextPart string

// The parts, in the order in which they are quoted.
const (
	PartSelf          ContextPart = "self"
	PartSessionHealth ContextPart = "session_health"
	PartTask          ContextPart = "task"
	PartInboxSummary  ContextPart = "inbox_summary"
	PartBudget        ContextPart = "budget"
)

// ContextParts lists every part in its order.
func ContextParts() []ContextPart {
	return []ContextPart{PartSelf, PartSessionHealth, PartTask, PartInboxSummary, PartBudget}
}

// FrontMatter is the front matter of a file, with the default of each field that it leaves out.
type FrontMatter struct {
	Version int
	Enabled bool // true by default, false for an empty file
	Summary string
	// MinInterval is min_interval as it is written; nil: the file has none. See [Policy.OwnInterval].
	MinInterval *time.Duration
	Windows     Windows // as they are written; see [Policy.Hours]
	// Include are the parts that the wake prompt quotes, each once, in the order of [ContextParts].
	Include []ContextPart
}

// A Policy is a file that was parsed.
type Policy struct {
	// Valid is false if there was an error. Then the other fields are what could be read, and the
	// policy must not wake anybody.
	Valid bool
	FrontMatter
	// Body is the normalized text below the front matter, as a whole. [Policy.Projection] cuts it.
	Body string
	// Digest is sha256: and the hash of what the file means under the settings. It is empty if the
	// policy is not valid.
	Digest string
	// RawDigest is sha256: and the hash of the exact bytes, by which an invalid file is replaced.
	RawDigest string
	// ConfigDigest is sha256: and the hash of the settings that change the meaning of a file.
	ConfigDigest string
}

// Parse reads a file. It always returns a policy. The diagnostics are in the order of the file,
// and there are at most 50. The policy is valid if all of them are warnings.
func Parse(source []byte, o Options) (*Policy, []Diagnostic) {
	f := newFindings(o.SourcePath)
	p := &Policy{RawDigest: RawDigest(source), ConfigDigest: ConfigDigest(o.Settings)}
	p.read(source, o, f)
	if f.errors == 0 {
		p.Valid = true
		p.Digest = digest(p)
	}
	return p, f.sorted()
}

// read reads as much of a file as can be read.
func (p *Policy) read(source []byte, o Options, f *findings) {
	if len(source) > MaxSource {
		f.refuse(CodeFileTooLarge, place{}, "the file has %d bytes, at most %d are allowed", len(source), MaxSource)
		return
	}
	text, ok := f.normalize(source)
	if !ok {
		return
	}
	f.secretsIn(text)
	s, ok := f.split(text)
	if !ok {
		return
	}
	r := reader{findings: f, settings: o.Settings, firstLine: 2}
	r.FrontMatter.Version = SchemaVersion
	r.frontMatter(s.front)
	body, dropped := normalizeBody(s.body)
	p.FrontMatter, p.Body = r.result(), body
	if !r.enabledSet {
		p.Enabled = r.fields > 0 || p.Body != ""
	}
	f.reservedHeadings(body, s.bodyLine+dropped)
	f.bodySize(body, s.bodyLine+dropped, o)
}

// bodySize refuses a long body that somebody wants to write, and reports that of a file.
func (f *findings) bodySize(body string, line int, o Options) {
	limit, at := o.Settings.MaxBodyBytes, place{line: line, column: 1}
	switch {
	case len(body) <= limit:
	case o.Mode == ModeWrite:
		f.refuse(CodeBodyTooLarge, at, "the body has %d bytes, at most %d are allowed", len(body), limit)
	default:
		f.warn(CodeBodyTruncated, at, "the body has %d bytes; only the first %d count", len(body), limit)
	}
}

// Hours are the windows that apply under the settings.
func (p *Policy) Hours(s Settings) Windows {
	if !s.AllowActiveHoursPreferences {
		return Windows{Quiet: p.Windows.Quiet}
	}
	return p.Windows
}

// OwnInterval is the file's own least time between two wakes, raised to the bound of the
// settings. It is 0 if the file has none.
func (p *Policy) OwnInterval(s Settings) time.Duration {
	if p.MinInterval == nil {
		return 0
	}
	return max(*p.MinInterval, s.MinInterval)
}
