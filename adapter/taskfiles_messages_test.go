package adapter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/process"
)

// taskFileOf is where an agent finds its task.
func taskFileOf(p *scriptedProcess) string {
	for _, kv := range p.job.Env {
		if path, ok := strings.CutPrefix(kv, "PICKET_TASK_FILE="); ok {
			return path
		}
	}
	return ""
}

// Messages that come while an agent works are in messages.json soon, also if the first answer of the
// store is lost. Messages of a run before that wait no more are removed at the start.
func TestMessagesReachTheAgentAsAFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		var last MessageFile
		v, _, _ := runWithStall(t, func(s **adaptertest.Server) scriptedLauncher {
			return func(p *scriptedProcess) {
				file := filepath.Join(filepath.Dir(taskFileOf(p)), messagesFile)
				look := func() {
					text, err := os.ReadFile(file)
					if err != nil {
						seen = append(seen, "none")
						return
					}
					last = MessageFile{}
					if err := json.Unmarshal(text, &last); err != nil {
						t.Errorf("%s: %v", text, err)
					}
					var all []string
					for _, m := range last.Messages {
						all = append(all, m.Body)
					}
					seen = append(seen, strings.Join(all, ","))
				}
				id := p.job.Lease.TaskID
				time.Sleep(5 * time.Second)
				look()
				(*s).Fail("/v1/run/messages", adaptertest.Unavailable, 2)
				(*s).Tell(id, "one")
				time.Sleep(5 * time.Second)
				look()
				(*s).Tell(id, "two")
				time.Sleep(5 * time.Second)
				look()
				p.endWith(process.Exited{})
			}
		})
		if got := strings.Join(seen, ";"); got != "none;one;one,two" {
			t.Errorf("the agent saw %q", got)
		}
		if last.Unread != 2 || last.At.IsZero() || len(last.History) != 2 || last.Messages[0].From.Kind != "person" {
			t.Errorf("the file is %+v", last)
		}
		if got := v.toldOf(EventMessages); len(got) != 2 {
			t.Errorf("Config.OnEvent was told %v", got)
		}
	})
}
