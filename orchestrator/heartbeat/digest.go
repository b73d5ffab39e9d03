package heartbeat

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/go-json-experiment/json"
)

// A digest is written as sha256: and the hash in hex.
func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// RawDigest is the digest of the exact bytes of a file.
func RawDigest(source []byte) string { return digestOf(source) }

// ConfigDigest is the digest of the settings that change the meaning of a file.
func ConfigDigest(s Settings) string {
	return digestOf(canonical(struct {
		Enabled         bool   `json:"enabled"`
		MaxBodyBytes    int    `json:"max_body_bytes"`
		MinInterval     string `json:"min_interval"`
		DefaultInterval string `json:"default_interval"`
		AllowHours      bool   `json:"allow_active_hours_preferences"`
	}{s.Enabled, s.MaxBodyBytes, s.MinInterval.String(), s.DefaultInterval.String(), s.AllowActiveHoursPreferences}))
}

// digest is that of a valid policy: of the version of the format, the normalized body, the canonical
// front matter and the settings.
func digest(p *Policy) string {
	return digestOf(canonical(struct {
		SchemaVersion int              `json:"schema_version"`
		Body          string           `json:"body"`
		FrontMatter   canonicalMembers `json:"frontmatter"`
		Config        string           `json:"config"`
	}{SchemaVersion, p.Body, p.FrontMatter.members(), p.ConfigDigest}))
}

// canonicalMembers is front matter as JSON in one form: two files that mean the same have the same.
type canonicalMembers struct {
	Version     int              `json:"version"`
	Enabled     bool             `json:"enabled"`
	Summary     string           `json:"summary,omitzero"`
	Preferences canonicalDetails `json:"preferences,omitzero"`
}

type canonicalDetails struct {
	MinInterval  string            `json:"min_interval,omitzero"`
	ActiveHours  []canonicalWindow `json:"active_hours,omitempty"`
	QuietWindows []canonicalWindow `json:"quiet_windows,omitempty"`
	Context      *canonicalContext `json:"context,omitempty"`
}

type canonicalContext struct {
	Include []ContextPart `json:"include"`
}

type canonicalWindow struct {
	Timezone string `json:"timezone"`
	Start    string `json:"start"`
	End      string `json:"end"`
}

// CanonicalJSON returns the front matter as JSON in its canonical form, which is also YAML that can
// be parsed again.
func (m FrontMatter) CanonicalJSON() []byte { return canonical(m.members()) }

func (m FrontMatter) members() canonicalMembers {
	c := canonicalMembers{Version: m.Version, Enabled: m.Enabled, Summary: m.Summary}
	if m.MinInterval != nil {
		c.Preferences.MinInterval = m.MinInterval.String()
	}
	c.Preferences.ActiveHours = canonicalWindows(m.Windows.Active)
	c.Preferences.QuietWindows = canonicalWindows(m.Windows.Quiet)
	if len(m.Include) > 0 {
		c.Preferences.Context = &canonicalContext{Include: m.Include}
	}
	return c
}

func canonicalWindows(list []Window) (windows []canonicalWindow) {
	for _, w := range list {
		windows = append(windows, canonicalWindow{w.Timezone, w.Start.String(), w.End.String()})
	}
	return windows
}

func canonical(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types above can always be written
	}
	return b
}
