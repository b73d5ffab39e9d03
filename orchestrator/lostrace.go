package orchestrator

import (
	"cmp"
	"strings"

	"github.com/picket-dev/picket"
)

// What the second of two people is told: who has decided what, and when.

// decidedBy names whoever decided first.
func (f facts) decidedBy() string {
	by := f.or("by", "somebody")
	if by == "deadline" {
		return "its deadline"
	}
	if name := f.or("byName", ""); name != "" {
		return name + " (" + by + ")"
	}
	return by
}

// decidedAt says when that was; "" when nobody knows.
func (f facts) decidedAt() string {
	if at := parseInt(f["at"]); at > 0 {
		return " at " + picket.Instant(at).String()
	}
	return ""
}

// pastTense are decisions as they are told.
var pastTense = map[string]string{
	"answer":  "answered",
	"finish":  "finished",
	"cancel":  "cancelled",
	"approve": "approved",
	"reject":  "rejected",
	"pause":   "paused",
	"stop":    "stopped",
	"retry":   "retried",
}

// alreadyDecided is who has decided what, and when.
func (f facts) alreadyDecided() string {
	said := cmp.Or(f["answer"], f["note"], f["reason"])
	if said != "" {
		said = ": " + said
	}
	return f.decidedBy() + " " + pastTense[f["decision"]] + " it already" + f.decidedAt() + said
}

// excerpt cuts text to 500 characters.
func excerpt(s string) string {
	n := 0
	for i := range s {
		if n++; n > 500 {
			return strings.ToValidUTF8(s[:i], "\uFFFD") + "…"
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// freeTextFacts are the facts that hold free text: a script has escaped it.
var freeTextFacts = []string{"byName", "answer", "note", "reason"}
