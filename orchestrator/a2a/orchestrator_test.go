package a2a_test

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// At the endpoint of the orchestrator, a message that begins a task names its pool if the key may use several. One that
// continues a task needs no name: the pool is that of the task.
func TestTheOrchestratorKnowsThePoolOfATask(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		say := func(taskID string, metadata map[string]any) string {
			message := map[string]any{"messageId": "m-" + taskID, "role": "ROLE_USER",
				"parts": []map[string]any{{"text": "red"}}, "metadata": metadata}
			if taskID != "" {
				message["taskId"] = taskID
			}
			return f.rpcAt(t, "", f.other, "SendMessage", map[string]any{"message": message,
				"configuration": map[string]any{"returnImmediately": true}})
		}
		if got := say("", nil); !strings.Contains(got, "role is required, because the key may use 2 pools") {
			t.Errorf("a message for no pool: %s", got)
		}
		if got := say("", map[string]any{"role": "builder"}); !strings.Contains(got, "TASK_STATE_SUBMITTED") {
			t.Fatalf("a message for a pool: %s", got)
		}
		held := f.lease(t)
		_, err := f.RequestHelp(t.Context(), held, picket.HelpRequest{Question: "Which?"})
		must(t, err)
		if got := say(held.TaskID, nil); !strings.Contains(got, `"id":"`+held.TaskID+`"`) {
			t.Errorf("an answer: %s", got)
		}
		now, err := f.Task(t.Context(), held.TaskID)
		must(t, err)
		if len(now.Answers) != 1 || string(now.Answers[0].Answer) != `"red"` {
			t.Errorf("answers %+v", now.Answers)
		}
		for _, id := range []string{string(f.submitted(t)), "task_" + strings.Repeat("0", 26)} {
			if got := say(id, nil); !strings.Contains(got, "-32001") {
				t.Errorf("a message to a task of nobody or of another client: %s", got)
			}
		}
	})
}
