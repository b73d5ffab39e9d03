package process_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// A process reads what its launcher was given, at every level. When the process has ended, writing fails:
// nothing else holds the other end open.
func TestAProcessReadsItsStandardInput(t *testing.T) {
	for _, level := range proctest.Levels(t) {
		t.Run(level, func(t *testing.T) {
			theirs, mine, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer mine.Close()
			var out bytes.Buffer
			p, err := process.CommandLauncher{
				Command:     []string{"sh", "-c", `read line; echo "got $line"; read line; echo "got $line"`},
				Containment: level,
			}.Launch(t.Context(), process.Job{
				Lease:  picket.Lease{RunID: "run_stdin"},
				Dir:    t.TempDir(),
				Stdout: &out,
				Stdin:  theirs,
			})
			theirs.Close()
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range []string{"one\n", "two\n"} {
				if _, err := mine.WriteString(line); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-p.Done():
			case <-time.After(time.Minute):
				p.Kill()
				t.Fatal("the process does not end")
			}
			if got := out.String(); got != "got one\ngot two\n" {
				t.Errorf("it printed %q", got)
			}
			if _, err := mine.WriteString("three\n"); err == nil {
				t.Error("somebody still holds the standard input open")
			}
		})
	}
}
