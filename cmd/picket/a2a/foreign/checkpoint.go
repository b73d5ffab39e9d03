package foreign

import (
	"crypto/sha256"
	"encoding/hex"
	stdjson "encoding/json"
	"strconv"
	"strings"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
)

// checkpoint is what a run notes of the foreign task in its report, so that the next run goes on with it.
type checkpoint struct {
	URL    string `json:"url"`    // of the foreign agent
	TaskID string `json:"taskId"` // of the task here
	// Round counts the foreign tasks of the task. A new one is begun if the last one has failed.
	Round int `json:"round"`
	// Advice is the hand-off whose answer goes with the message that begins the round: it says how to go on after the
	// failure of the last one.
	Advice    string          `json:"advice,omitempty"`
	Remote    protocol.TaskID `json:"remoteTaskId,omitempty"` // empty: it is not known whether the message was taken
	ContextID string          `json:"contextId,omitempty"`
	// Asked names what the foreign agent has asked, and Question is the SHA-256 of the words in which it was passed on.
	Asked    string `json:"asked,omitempty"`
	Question string `json:"question,omitempty"`
	// Answered is the last hand-off whose answer was passed on, or needs no passing on.
	Answered string `json:"answered,omitempty"`
}

// checkpointPrefix begins the line of a report that holds a checkpoint.
const checkpointPrefix = "foreign task: "

// line is the checkpoint as a line of a report.
func (c checkpoint) line() string {
	raw, _ := stdjson.Marshal(c) // strings and a number
	return checkpointPrefix + string(raw)
}

// checkpointIn finds the checkpoint in the last report of a task. Without one, or with that of another agent or task,
// the first round begins.
func checkpointIn(r *picket.Report, address, task string) checkpoint {
	first := checkpoint{URL: address, TaskID: task, Round: 1}
	if r == nil {
		return first
	}
	for _, line := range r.Beliefs {
		raw, found := strings.CutPrefix(line, checkpointPrefix)
		var c checkpoint
		if found && stdjson.Unmarshal([]byte(raw), &c) == nil && c.URL == address && c.TaskID == task && c.Round >= 1 {
			return c
		}
	}
	return first
}

// askedKey names what a foreign agent asks: by the id of its message, or by its words.
func askedKey(s protocol.TaskStatus, words string) string {
	if s.Message != nil && s.Message.ID != "" && len(s.Message.ID) <= maxForeignID {
		return string(s.State) + " " + s.Message.ID
	}
	return string(s.State) + " " + hashOf(words)
}

func hashOf(words string) string {
	sum := sha256.Sum256([]byte(words))
	return hex.EncodeToString(sum[:])
}

// messageID names a message so that the same message always has the same id: a foreign agent that has taken it does
// not take it again.
func (c checkpoint) messageID(of ...string) string {
	all := append([]string{c.URL, c.TaskID, strconv.Itoa(c.Round)}, of...)
	sum := sha256.Sum256([]byte(strings.Join(all, "\x00")))
	return "picket-" + hex.EncodeToString(sum[:16])
}
