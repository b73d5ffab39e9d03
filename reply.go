package picket

import (
	"cmp"
	"strings"
)

// Reply is the body of the tool reply: a message that answers the client and completes the task. Only a task whose
// client takes one, that nobody reviews, and that has emitted nothing can be completed so.
type Reply struct {
	Parts []Part `json:"parts"`
	// Children is as in [Completion].
	Children Children `json:"children,omitempty"`
}

// Normalize refuses a message that is out of bounds.
func (r *Reply) Normalize() error {
	size, err := normalizeParts(r.Parts)
	if err == nil && size > MaxPayload {
		err = TooLarge("/parts", size)
	}
	return cmp.Or(err, r.Children.Check())
}

// Text joins the text of its parts, a line each.
func (r Reply) Text() string {
	var lines []string
	for _, p := range r.Parts {
		if p.Text != nil {
			lines = append(lines, *p.Text)
		}
	}
	return strings.Join(lines, "\n")
}
