package a2a_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// Numbers keep their digits, in what a client sends and in what an agent answers, however large they are. Both
// spellings of a param at once are refused.
func TestNumbersKeepTheirDigits(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		const big = "12345678901234567890"
		send := func(id, parts string) string {
			return f.rawRPC(f.client, "SendMessage", `{"message":{"messageId":"`+id+`","role":"ROLE_USER","parts":`+
				parts+`,"metadata":{"n":`+big+`}},"configuration":{"returnImmediately":true}}`)
		}
		said := send("m1", `[{"data":{"n":`+big+`},"metadata":{"m":`+big+`}}]`)
		if n := strings.Count(said, big); n != 3 {
			t.Errorf("the answer has the number %d times, want 3: %s", n, said)
		}
		held := f.lease(t)
		task, err := f.Task(t.Context(), held.TaskID)
		must(t, err)
		if n := strings.Count(string(task.Input), big); n != 3 {
			t.Errorf("the input has the number %d times, want 3: %s", n, task.Input)
		}
		hint := f.rawRPC(f.client, "SendMessage", `{"message":{"messageId":"m2","taskId":"`+held.TaskID+
			`","role":"ROLE_USER","parts":[{"data":`+big+`}]},"configuration":{"returnImmediately":true}}`)
		if !strings.Contains(hint, `"data":`+big) {
			t.Errorf("the history: %s", hint)
		}
		f.complete(t, held, `{"parts":[{"data":`+big+`,"metadata":{"n":`+big+`}}]}`)
		shown := f.rawRPC(f.client, "GetTask", `{"id":"`+held.TaskID+`","historyLength":0}`)
		if n := strings.Count(shown, big); n != 2 {
			t.Errorf("the artifact has the number %d times, want 2: %s", n, shown)
		}
	})
}

// A number that no float holds is shown as the agent wrote it, and ends a wait as any other result does.
func TestANumberBeyondAllBounds(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for i, output := range []string{`{"data":1e999}`, `{"parts":[{"data":1e999}]}`, `1e999`,
			`{"parts":[{"text":"a","metadata":{"n":1e999}}]}`} {
			answer := make(chan string, 1)
			go func() {
				answer <- f.rawRPC(f.client, "SendMessage",
					`{"message":{"messageId":"m`+strconv.Itoa(i)+`","role":"ROLE_USER","parts":[{"text":"x"}]}}`)
			}()
			f.complete(t, f.lease(t), output)
			if said := <-answer; !strings.Contains(said, "1e999") || !strings.Contains(said, "TASK_STATE_COMPLETED") {
				t.Errorf("%s: %s", output, said)
			}
		}
		said := f.rawRPC(f.client, "SendMessage", `{"message":{"messageId":"huge","role":"ROLE_USER","parts":[{"data":1e999}]},`+
			`"configuration":{"returnImmediately":true}}`)
		if !strings.Contains(said, "1e999") {
			t.Errorf("a message with the number: %s", said)
		}
		held := f.lease(t)
		text := "hello"
		_, err := f.Emit(t.Context(), held, "", picket.ArtifactChunk{Parts: []picket.Part{{Text: &text,
			Metadata: map[string]picket.RawJSON{"n": picket.RawJSON("1e999")}}}})
		must(t, err)
		if shown := f.rawRPC(f.client, "GetTask", `{"id":"`+held.TaskID+`"}`); !strings.Contains(shown, "hello") {
			t.Errorf("an emission with the number: %s", shown)
		}
	})
}

// Both spellings of one param at once are refused: which of them is meant nobody knows.
func TestAParamIsThereOnce(t *testing.T) {
	f := onMemory(t)
	for params, want := range map[string]string{
		`{"page_size":3}`:                               `"pageSize":3`,
		`{"pageSize":3,"page_size":4}`:                  "-32602",
		`{"page_size":4,"pageSize":3}`:                  "-32602",
		`{"page__size":4,"page_size":3,"pageSize":3}`:   "-32602",
		`{"context_id":"a","contextId":"a","id":"x"}`:   "-32602",
		`{"page_size":3,"page_Size":4}`:                 "-32602",
		`{"pageSize":3,"history_length":0,"status":""}`: `"pageSize":3`,
	} {
		for range 10 { // a map has no order
			if said := f.rawRPC(f.client, "ListTasks", params); !strings.Contains(said, want) {
				t.Errorf("%s: %s, want %s", params, said, want)
			}
		}
	}
}
