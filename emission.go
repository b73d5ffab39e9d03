package picket

import (
	"cmp"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// An emission is what the agent of a task tells its client while it works: a piece of an artifact, or a
// status message. It changes neither the state of the task nor its result.

// Bounds of emissions.
const (
	MaxEmissions     = 1000     // of one task
	MaxEmittedBytes  = 4 << 20  // of the emissions of one task
	MaxEmittedParts  = 100      // of one emission
	MaxEmission      = 64 << 10 // bytes of the parts of one emission, as JSON
	MaxStatusText    = 16 << 10 // bytes of a status message
	MaxArtifactID    = 128      // bytes
	MaxArtifactName  = 256      // bytes
	MaxArtifactAbout = 4 << 10  // bytes of the description of an artifact

	// DefaultArtifact is the id of the artifact of an emission that names none.
	DefaultArtifact = "output"
)

// Emission is what an agent has emitted.
type Emission struct {
	Seq          int64          `json:"seq"` // counts the emissions of the task from 1
	RunID        string         `json:"runId"`
	FencingToken int64          `json:"fencingToken"` // of the run when it emitted
	At           Instant        `json:"at"`
	Artifact     *ArtifactChunk `json:"artifact,omitempty"`
	Status       *StatusMessage `json:"status,omitempty"` // exactly one of the two is set
}

// ArtifactChunk is the body of the tool emit: an artifact, or a piece that is appended to one.
type ArtifactChunk struct {
	ArtifactID  string `json:"artifactId,omitempty"` // of the task; empty: DefaultArtifact
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"`
	Parts       []Part `json:"parts"`
	// Append adds the parts to an artifact that is there and open. Without it they replace what was there.
	Append bool `json:"append,omitzero"`
	Last   bool `json:"last,omitzero"` // nothing is appended to the artifact after it
}

// Part is a piece of content of the form of A2A 1.0. Exactly one of Text, Raw, URL and Data is set.
type Part struct {
	Text      *string            `json:"text,omitzero"`
	Raw       []byte             `json:"raw,omitzero"` // base64 in JSON
	URL       string             `json:"url,omitempty"`
	Data      RawJSON            `json:"data,omitzero"` // any JSON
	MediaType string             `json:"mediaType,omitempty"`
	Filename  string             `json:"filename,omitempty"`
	Metadata  map[string]RawJSON `json:"metadata,omitempty"`
}

// StatusMessage is the body of the tool emit_status: a sentence about how the task goes.
type StatusMessage struct {
	Message string `json:"message"`
}

// Emitted answers the tools emit and emit_status.
type Emitted struct {
	Seq    int64  `json:"seq"`             // counts the emissions of the task from 1
	Nudge  *Nudge `json:"nudge,omitempty"` // the agent seems to be stuck
	Unread int    `json:"unread,omitzero"` // how many messages wait for the agent
}

// Normalize refuses a chunk that is out of bounds, and names its artifact.
func (c *ArtifactChunk) Normalize() error {
	c.ArtifactID = cmp.Or(c.ArtifactID, DefaultArtifact)
	if len(c.ArtifactID) > MaxArtifactID || strings.ContainsFunc(c.ArtifactID, isUnprintable) {
		return Invalid("/artifactId", "Use 1 to 128 printable ASCII characters.", "artifactId is not valid")
	}
	if err := cmp.Or(checkEmittedText("/name", c.Name, MaxArtifactName),
		checkEmittedText("/description", c.Description, MaxArtifactAbout)); err != nil {
		return err
	}
	size, err := normalizeParts(c.Parts)
	if err == nil && size > MaxEmission {
		err = emissionTooLarge("/parts", size, MaxEmission)
	}
	return err
}

// normalizeParts refuses parts that A2A does not have, and too many of them. It returns how many bytes they are as
// JSON.
func normalizeParts(parts []Part) (size int, err error) {
	if n := len(parts); n == 0 || n > MaxEmittedParts {
		return 0, Invalid("/parts", "Send 1 to 100 parts.", "parts has %d entries", n)
	}
	for i := range parts {
		if err := parts[i].normalize("/parts/" + strconv.Itoa(i)); err != nil {
			return 0, err
		}
	}
	b, err := json.Marshal(parts)
	if err != nil {
		return 0, Invalid("/parts", "Send valid parts.", "parts is not valid JSON").WithCause(err)
	}
	return len(b), nil
}

// isUnprintable reports whether a rune lies outside of the printable ASCII characters, or is a blank.
func isUnprintable(r rune) bool { return r <= ' ' || r >= utf8.RuneSelf-1 }

// normalize refuses a part that A2A does not have. Null stands for a part without data.
func (p *Part) normalize(at string) error {
	if string(p.Data) == "null" {
		p.Data = nil
	}
	kinds := 0
	for _, set := range []bool{p.Text != nil, p.Raw != nil, p.URL != "", p.Data != nil} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return Invalid(at, "Send exactly one of text, raw, url and data.", "the part has %d of them", kinds)
	}
	if p.URL == "" {
		return nil
	}
	if u, err := url.Parse(p.URL); err != nil || !u.IsAbs() {
		return Invalid(at+"/url", "Send an absolute URL.", "url is not an absolute URL")
	}
	return nil
}

// Check refuses a message that is empty or too long.
func (m StatusMessage) Check() error {
	if strings.TrimSpace(m.Message) == "" {
		return Invalid("/message", "Say in a sentence what you do.", "message is required")
	}
	return checkEmittedText("/message", m.Message, MaxStatusText)
}

func checkEmittedText(field, text string, limit int) error {
	if len(text) <= limit {
		return nil
	}
	return emissionTooLarge(field, len(text), limit)
}

func emissionTooLarge(field string, n, limit int) error {
	return Refuse(CodeTooLarge, "Send less at once.", "%s has %d bytes, at most %d are allowed", field, n, limit).
		With("field", field).With("limit", limit)
}
