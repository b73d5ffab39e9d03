package orchestrator

import (
	"cmp"
	"strings"

	"github.com/picket-dev/picket"
)

// What the second of two people is told: who has decided what, and when.

// who names whoever decided first.
func (f facts) who() string {
	by := f.or("by", "somebody")
	if by == "deadline" {
		return "its deadline"
	}
	if name := f.or("byName", ""); name != "" {
		return name + " (" + by + ")"
	}
	return by
}

// when says when that was; "" when nobody knows.
func (f facts) when() string {
	if at := integer(f["at"]); at > 0 {
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

// decided is who has decided what, and when.
func (f facts) decided() string {
	said := cmp.Or(f["answer"], f["note"], f["reason"])
	if said != "" {
		said = ": " + said
	}
	return f.who() + " " + pastTense[f["decision"]] + " it already" + f.when() + said
}

// briefly cuts text to 500 characters.
func briefly(s string) string {
	n := 0
	for i := range s {
		if n++; n > 500 {
			return strings.ToValidUTF8(s[:i], "\uFFFD") + "…"
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// freeText are the facts that hold free text: a script has escaped it.
var freeText = []string{"byName", "answer", "note", "reason"}
