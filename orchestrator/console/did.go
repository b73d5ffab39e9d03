package console

import (
	"fmt"

	"github.com/picket-dev/picket"
)

// sentences are what a page says after a decision, by the code in its address.
// An address can be written by anybody, so nothing else of it is shown.
var sentences = map[string]string{
	"claimed":   "You look after this hand-off now.",
	"answered":  "Answered. The task is queued again, with the answer in its context.",
	"finished":  "Finished. The task is completed with your output.",
	"cancelled": "Cancelled. The task ends here.",
	"approved":  "Approved. The task is completed.",
	"rejected":  "Rejected. The task stays as it is, for the record.",
	"fixing":    "Rejected, and the task that repairs it is queued.",
}

// sentenceOf is empty for codes that are not ours.
func sentenceOf(code, id string) string {
	said := sentences[code]
	if said != "" && code == "fixing" && picket.CheckID("id", "task", id) == nil {
		return fmt.Sprintf("Rejected. %s, which repairs it, is queued.", id)
	}
	return said
}
