package heartbeat

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
)

// reader reads front matter.
type reader struct {
	*findings
	FrontMatter
	settings    Settings
	front       string // the text
	firstLine   int    // of the front matter, in the file
	fields      int    // at the top
	windowCount int
	enabledSet  bool
	included    bool // context.include was there
}

// mapping is what a mapping may contain: a function for each key.
type mapping map[string]func(entry)

func (r *reader) frontMatter(front string) {
	r.front = front
	root := r.parse(front)
	if _, null := root.(*ast.NullNode); root == nil || null {
		return
	}
	known := mapping{
		"version":     r.version,
		"enabled":     r.enabled,
		"summary":     r.summary,
		"preferences": r.preferences,
		"context":     r.context,
	}
	if !r.read("", root, known) {
		r.malformed(r.at("", firstToken(root)), "the front matter must be a mapping of fields to values")
	}
}

// read reads a mapping. It returns false if the node is not one.
func (r *reader) read(path string, node ast.Node, known mapping) bool {
	list, ok := r.entries(path, node)
	for _, e := range list {
		if path == "" {
			r.fields++
		}
		if read := known[e.key]; read != nil {
			read(e)
			continue
		}
		if !r.forbidden(e) {
			r.refuse(CodeUnsupportedField, e.at, "there is no field %s", quoted(e.at.path))
		}
		r.inside(e, 1)
	}
	return ok
}

// forbidden refuses a field that belongs to another surface.
func (r *reader) forbidden(e entry) bool {
	surface := fieldSurfaces[fieldName(e.key)]
	if surface == "" {
		return false
	}
	r.refuseOwned(CodeForbiddenField, e.at, surface, "the field %s is not allowed in HEARTBEAT.md", quoted(e.at.path))
	return true
}

// inside looks for forbidden fields and secrets in a value whose own fields are unknown.
func (r *reader) inside(e entry, depth int) {
	if depth > maxDepth {
		r.malformed(e.at, "the front matter is nested too deeply")
		return
	}
	if text, ok := textOf(e.value); ok {
		r.decodedSecrets(text, r.valueAt(e))
	}
	list, isMapping := r.entries(e.at.path, e.value)
	if !isMapping {
		list, _ = r.items(e)
	}
	for _, child := range list {
		if isMapping {
			r.forbidden(child)
		}
		r.inside(child, depth+1)
	}
}

// decodedSecrets refuses a secret that escapes of YAML hide. One that stands in the file as it is was
// refused already.
func (r *reader) decodedSecrets(text string, at place) {
	for _, secret := range rawSecret().FindAllString(text, -1) {
		if !strings.Contains(r.front, secret) {
			r.refuseSecret(at)
			return
		}
	}
}

// text reads a text.
func (r *reader) text(e entry, code Code, remedy string) (string, bool) {
	text, ok := textOf(e.value)
	if !ok {
		r.refuse(code, r.valueAt(e), "%s must be a text; %s", e.at.path, remedy)
		r.inside(e, 1)
		return "", false
	}
	r.decodedSecrets(text, r.valueAt(e))
	return text, true
}

func (r *reader) version(e entry) {
	if n, ok := e.value.(*ast.IntegerNode); !ok || n.GetToken().Value != "1" {
		r.refuse(CodeInvalid, r.valueAt(e), "version must be the integer %d", SchemaVersion)
		r.inside(e, 1)
	}
}

func (r *reader) enabled(e entry) {
	r.enabledSet = true
	n, ok := e.value.(*ast.BoolNode)
	if !ok {
		r.refuse(CodeInvalid, r.valueAt(e), "enabled must be true or false")
		r.inside(e, 1)
		return
	}
	r.Enabled = n.Value
}

func (r *reader) summary(e entry) {
	text, ok := r.text(e, CodeInvalid, "put it in quotes")
	n := utf8.RuneCountInString(text)
	switch {
	case !ok:
	case n > MaxSummary:
		r.refuse(CodeInvalid, r.valueAt(e), "summary has %d characters, at most %d are allowed", n, MaxSummary)
	case strings.ContainsFunc(text, func(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' }):
		r.refuse(CodeInvalid, r.valueAt(e), "summary has control characters")
	default:
		r.Summary = strings.TrimSpace(text)
	}
}

func (r *reader) preferences(e entry) {
	r.section(e, mapping{
		"min_interval":  r.minInterval,
		"active_hours":  r.activeHours,
		"quiet_windows": r.quietWindows,
		"context":       r.context,
	})
}

func (r *reader) context(e entry) { r.section(e, mapping{"include": r.include}) }

// section reads a mapping below a key.
func (r *reader) section(e entry, known mapping) {
	if !r.read(e.at.path, e.value, known) {
		r.refuse(CodeInvalid, r.valueAt(e), "%s must be a mapping of fields to values", e.at.path)
		r.inside(e, 1)
	}
}

func (r *reader) minInterval(e entry) {
	const remedy = `write a duration such as "30m"`
	text, ok := r.text(e, CodeInvalidMinInterval, remedy)
	if !ok {
		return
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		r.refuse(CodeInvalidMinInterval, r.valueAt(e), "min_interval is %s; %s", quoted(text), remedy)
	case d < 0:
		r.refuse(CodeInvalidMinInterval, r.valueAt(e), "min_interval is negative; %s", remedy)
	case d > MaxInterval:
		r.refuse(CodeInvalidMinInterval, r.valueAt(e), "min_interval is %s, at most %s are allowed", d, MaxInterval)
	default:
		r.MinInterval = &d
		if d < r.settings.MinInterval {
			r.warn(CodePreferenceClamped, r.valueAt(e), "min_interval is %s and was raised to wake.min_interval, which is %s",
				d, r.settings.MinInterval)
		}
	}
}

func (r *reader) include(e entry) {
	if r.included {
		r.refuse(CodeInvalid, e.at, "context.include is there twice; keep one of the two")
		return
	}
	r.included = true
	list, ok := r.items(e)
	if !ok {
		r.refuse(CodeInvalid, r.valueAt(e), "%s must be a list", e.at.path)
		r.inside(e, 1)
	}
	for _, item := range list {
		text, ok := r.text(item, CodeInvalid, "see the parts of get_context")
		if ok && !slices.Contains(ContextParts(), ContextPart(text)) {
			r.refuse(CodeInvalid, r.valueAt(item), "%s is not a part of the context; the parts are %v", quoted(text),
				ContextParts())
		} else if ok {
			r.Include = append(r.Include, ContextPart(text))
		}
	}
}

// result is the front matter in its normal form.
func (r *reader) result() FrontMatter {
	m := r.FrontMatter
	m.Windows = Windows{Active: normalWindows(m.Windows.Active), Quiet: normalWindows(m.Windows.Quiet)}
	m.Include = slices.DeleteFunc(ContextParts(), func(part ContextPart) bool {
		return !slices.Contains(r.Include, part)
	})
	return m
}
