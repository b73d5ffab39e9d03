package process_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// survivorCounts counts survivors by shape, and how long a tree took to die.
type survivorCounts struct {
	mu        sync.Mutex
	trees     int
	survivors map[string]int
	longest   time.Duration
}

func (c *survivorCounts) add(level, name string, survivors int, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trees++
	c.survivors[level+": "+name] += survivors
	c.longest = max(c.longest, took)
}

// Nobody of a tree survives, in any shape, however it is ended: the adapter
// kills it, or its leader dies. The process group holds those that stay in it;
// docs/guarantees.md says which do not, and may not say less or more.
func TestShapesOfTrees(t *testing.T) {
	rig.SkipShort(t)
	counts := &survivorCounts{survivors: map[string]int{}}
	levels := proctest.Levels(t)
	start, rounds := time.Now(), rig.SoakRounds(t, "process trees, of each shape and containment", 2, 50)
	t.Run("shapes", func(t *testing.T) {
		for _, level := range levels {
			for _, s := range treeShapes {
				t.Run(level+"/"+s.name, func(t *testing.T) {
					t.Parallel()
					for round := range rounds {
						checkTreeEnds(t, s, level, round, counts)
					}
				})
			}
		}
	})
	for _, level := range levels {
		n := 0
		for _, s := range treeShapes {
			n += counts.survivors[level+": "+s.name]
		}
		t.Logf("%s: %d survivors", level, n)
	}
	t.Logf("%d trees of %d shapes in %s, the slowest died in %s", counts.trees, len(treeShapes), time.Since(start).
		Round(time.Millisecond), counts.longest.Round(time.Millisecond))
}

// checkTreeEnds grows one tree, ends it and looks for survivors.
func checkTreeEnds(t *testing.T, s treeShape, level string, round int, counts *survivorCounts) {
	tr := launchTree(t, s, level, process.Job{})
	if got := tr.proc.Containment(); got != level {
		t.Errorf("it is held by %q, want %s", got, level)
	}
	if len(tr.marks.Find()) == 0 {
		t.Fatal("nobody is there: this test proves nothing")
	}
	start := time.Now()
	if round%2 == 0 {
		tr.proc.Kill()
	} else if err := syscall.Kill(tr.proc.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	tr.awaitDeath(t)
	took := time.Since(start)
	left := tr.marks.Find()
	counts.add(level, s.name, len(left), took)
	switch escapes := s.escapes && level == picket.ContainmentGroup; {
	case !escapes && len(left) > 0:
		t.Errorf("round %d: %d survived: %v", round, len(left), left)
	case escapes && len(left) == 0 && !strings.HasPrefix(s.name, "forks while it dies"):
		t.Errorf("round %d: no process escaped; correct docs/guarantees.md", round)
	}
	if exit := tr.proc.Exit(); exit.Signal != "SIGKILL" || exit.Code != 137 {
		t.Errorf("the leader ended with %+v", exit)
	}
	if group := proctest.ReadRecord(t, tr.state).Cgroup; (group != "") != (level == picket.ContainmentCgroup) {
		t.Errorf("the cgroup on record is %q", group)
	} else if _, err := os.Stat(group); group != "" && !os.IsNotExist(err) {
		t.Errorf("the cgroup was left: %v", err)
	}
	tr.destroy(t)
}

// The table of shapes in docs/guarantees.md says of each level what
// TestShapesOfTrees sees.
func TestDocumentedEscapes(t *testing.T) {
	b, err := os.ReadFile("../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) == 4 && (strings.TrimSpace(cells[3]) == "escapes" || strings.TrimSpace(cells[3]) == "held") {
			said = append(said, strings.Join(strings.Fields(line), " "))
		}
	}
	var want []string
	for _, s := range treeShapes {
		group := "held"
		if s.escapes {
			group = "escapes"
		}
		want = append(want, fmt.Sprintf("| %s | held | held | %s |", s.name, group))
	}
	if !slices.Equal(said, want) {
		t.Errorf("docs/guarantees.md says\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
}
