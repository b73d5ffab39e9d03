package console

import (
	"fmt"
	"strconv"

	"github.com/picket-dev/picket"
)

// flashMessages are what a page says after a decision, by the code in its address. Anybody can
// write an address, so only this part of it is shown, and only to a person who came from a page of
// this server: a link must not claim that something was decided.
var flashMessages = map[string]string{
	"claimed":   "You look after this hand-off now.",
	"answered":  "Answered. The task is queued again, with the answer in its context.",
	"finished":  "Finished. The task is completed with your output.",
	"cancelled": "Cancelled. The task ends here.",
	"approved":  "Approved. The task is completed.",
	"rejected":  "Rejected. The task stays as it is, for the record.",
	"fixing":    "Rejected, and the task that repairs it is queued.",
	"retried":   "Tried again: this task is queued.",
	"toppedup":  "Topped up.",
	"told":      "Sent. The message waits until the agent reads it.",
	"prompted":  "Sent. The page shows the answer as far as the agent has written it.",
	"woken":     "Woken. The page shows the answer as far as the agent has written it.",
	"notwoken":  "Not woken. The page shows why.",
	"ending":    "Asked. The session ends as soon as its worker gets the command.",

	"retried_soon": "Tried again: this task is queued, and a worker that waits for it starts at once.",
	"retried_idle": "Tried again: this task is queued, but no worker waits for it now. The page of the task shows the command that starts one.",

	"approvedall": "Approved.",

	"toppedup_answered":     "Topped up. The hand-off is answered, and the task is queued again.",
	"toppedup_kept_parked":  "Topped up. The hand-off stays open.",
	"toppedup_too_small":    "Topped up. The hand-off stays open, because the budget still does not cover the call that was refused last.",
	"toppedup_other_reason": "Topped up. The hand-off of the task stays open, because it does not ask for money.",

	"policywritten":    "Saved. This is the wake policy now.",
	"policydeleted":    "Deleted. The name has no wake policy. Its revisions stay in the history.",
	"policyrolledback": "Restored. The text of this revision is the wake policy again.",

	"submitted":    "Submitted. It is queued until an agent takes it.",
	"expired":      "The lease has been taken. Whatever the run still writes is refused.",
	"draining":     "Draining. It takes nothing new and finishes what it has.",
	"deregistered": "Deregistered. Its leases have ended, and their tasks are queued again.",
	"pinged":       "Asked. It answers with its next heartbeat.",
	"stopping":     "Asked. It gets the command with its next heartbeat.",
	"paused":       "Paused. Nothing new is granted.",
	"stopped":      "Stopped. Every run is being ended, and nothing is granted.",
	"resumed":      "Resumed. Tasks are granted again.",
}

// withFlash is the address of a page that reports a decision by the code of one of
// these messages. id is the part of the message that varies, or empty.
func withFlash(path, code, id string) string { return queryPath(path, "did", code, "id", id) }

// flashMessage is empty for codes that are not ours.
func flashMessage(code, id string) string {
	said := flashMessages[code]
	switch n, err := strconv.Atoi(id); {
	case code == "fixing" && picket.CheckID("id", "task", id) == nil:
		return fmt.Sprintf("Rejected. %s, which repairs it, is queued.", id)
	case code == "retried_pinned" && picket.CheckName("id", id) == nil:
		return fmt.Sprintf("Tried again: this task is queued for agent %s, which does not ask for work now. "+
			"The page of the task shows the command that starts it.", id)
	case code == "approvedall" && err == nil && n > 0 && n <= 500:
		return fmt.Sprintf("%d approved.", n)
	}
	return said
}
