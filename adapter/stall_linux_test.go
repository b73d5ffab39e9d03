package adapter_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
)

// What an agent makes of its directory while it runs does not lead a nudge out
// of it.
func TestANudgeStaysInside(t *testing.T) {
	for _, trap := range []string{
		`rm -r .picket; ln -s "$2" .picket`,
		`ln -s "$2/file" .picket/nudge.json; ln -s "$2/file" .picket/nudge.json.new`,
	} {
		out, post := t.TempDir(), newReadyFIFO(t)
		write(t, filepath.Join(out, "file"), "mine\n")
		s := adaptertest.Start(t)
		nudged := make(chan struct{})
		a := newAdapter(t, s, []string{"sh", "-c", trap + `; echo up > $1; exec sleep 1000`, "sh", post.path, out},
			func(c *adapter.Config) {
				c.OnEvent = func(e adapter.Event) {
					if e.Kind == adapter.EventNudged {
						close(nudged)
					}
				}
			})
		lease := s.Grant(adaptertest.Task{})
		ctx, stop := context.WithCancel(patience(t))
		defer stop()
		ended := make(chan error, 1)
		go func() {
			_, err := a.RunLease(ctx, lease)
			ended <- err
		}()
		post.read(t)
		s.Command(lease.TaskID, picket.Command{Command: "nudge", Number: 1, Cause: picket.NudgeLoop, Reason: "again"})
		select {
		case <-nudged:
		case <-patience(t).Done():
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
