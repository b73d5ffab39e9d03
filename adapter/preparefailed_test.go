package adapter

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/workspace"
)

// A run that is told to give its lease back, or loses it, while its directory is
// made ends then, and that is not a failure.
func TestRunEndsWhileItsDirectoryIsMade(t *testing.T) {
	for name, want := range map[string]Ending{"given back": EndReleased, "lost": EndLost} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				a, s := newScriptedAdapter(t, func(*scriptedProcess) { t.Error("an agent was launched") },
					func(c *Config) { c.Workspace, c.Dir = workspace.Copy, dir })
				lease := s.Grant(adaptertest.Task{})
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				SetStepHook(a, func(point string) {
					switch {
					case point != "made":
					case want == EndReleased:
						stop()
					default:
						s.Supersede(lease.TaskID)
						time.Sleep(time.Duration(lease.WindowMs) * time.Millisecond)
					}
				})
				res, err := a.RunLease(ctx, lease)
				if err != nil || res.Ending != want {
					t.Errorf("it ended %s with %s: %v", res.Ending, res.Exit.Class, err)
				}
				class := picket.ExitLeaseLost
				if want == EndReleased {
					class = picket.ExitReleased
				}
				if res.Exit.Class != class {
					t.Errorf("its class is %s, want %s", res.Exit.Class, class)
				}
			})
		})
	}
}
