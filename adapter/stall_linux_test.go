package adapter_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// What an agent makes of its directory while it runs does not lead a nudge out
// of it.
func TestANudgeStaysInside(t *testing.T) {
	for _, trap := range []string{
		`rm -r .picket; ln -s "$2" .picket`,
		`ln -s "$2/file" .picket/nudge.json; ln -s "$2/file" .picket/nudge.json.new`,
	} {
		out, post := t.TempDir(), proctest.NewFIFO(t)
		write(t, filepath.Join(out, "file"), "mine\n")
		s := adaptertest.Start(t)
		nudged := make(chan struct{})
		a := newAdapter(t, s, []string{"sh", "-c", trap + `; echo up > $1; exec sleep 1000`, "sh", post.Path, out},
			func(c *adapter.Config) {
				c.OnEvent = func(e adapter.Event) {
					if e.Kind == adapter.EventNudged {
						close(nudged)
					}
				}
			})
		lease := s.Grant(adaptertest.Task{})
		ctx, stop := context.WithCancel(proctest.Patience(t))
		defer stop()
		ended := make(chan error, 1)
		go func() {
			_, err := a.RunLease(ctx, lease)
			ended <- err
		}()
		post.Read(t)
		s.Command(lease.TaskID, picket.Command{Command: "nudge", Number: 1, Cause: picket.NudgeLoop, Reason: "again"})
		select {
		case <-nudged:
		case <-proctest.Patience(t).Done():
			t.Fatal("nobody was nudged")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(filepath.Join(out, "file"))
		files, _ := os.ReadDir(out)
		if err != nil || string(text) != "mine\n" || len(files) != 1 {
			t.Errorf("after %s: outside is %q in %v, %v", trap, text, files, err)
		}
	}
}
