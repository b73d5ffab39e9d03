package process

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// setLevels lets a test say what works here. Tests that do so do not run side by
// side with others.
func setLevels(t *testing.T, l containmentLevels) {
	t.Helper()
	real := availableLevels
	availableLevels = func() containmentLevels { return l }
	t.Cleanup(func() { availableLevels = real })
}

// refused checks a refusal and that it says what to do.
func refused(t *testing.T, err error, why, remedy string) {
	t.Helper()
	var e *picket.Error
	if !errors.As(err, &e) || e.Code != picket.CodeValidation || !strings.Contains(e.Message, why) ||
		!strings.Contains(e.Remedy, remedy) {
		t.Errorf("got %v, want a refusal with %q and the remedy %q", err, why, remedy)
	}
}

// A level that is not available is refused.
func TestForcedContainment(t *testing.T) {
	setLevels(t, containmentLevels{level: picket.ContainmentSubreaper, why: "the cgroup is mounted read-only"})
	refused(t, CheckContainment(picket.ContainmentCgroup), "the cgroup is mounted read-only", "Delegate=yes")
	for _, level := range []string{"", picket.ContainmentSubreaper, picket.ContainmentGroup} {
		if err := CheckContainment(level); err != nil {
			t.Errorf("%q: %v", level, err)
		}
	}
	refused(t, CheckContainment("jail"), "jail", "Use cgroup, subreaper, group")
}

// containedAs launches a program that says its cgroup and answers how it was
// held and what it said.
func containedAs(t *testing.T, l CommandLauncher) (string, string) {
	t.Helper()
	l.Command = []string{"cat", "/proc/self/cgroup"}
	var out bytes.Buffer
	p, err := l.Launch(context.Background(),
		Job{Dir: t.TempDir(), Stdout: &out, Lease: picket.Lease{RunID: "run_contained"}})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if p.Exit() != (Exited{}) {
		t.Errorf("ended with %+v", p.Exit())
	}
	return p.Containment(), out.String()
}

// Without a choice the best is taken, and a worse one where it fails after all.
func TestBestContainment(t *testing.T) {
	level, _ := BestContainment()
	got, said := containedAs(t, CommandLauncher{})
	inside := strings.Contains(said, "/"+cgroupPrefix+"run_contained-")
	if got != level || inside != (level == picket.ContainmentCgroup) {
		t.Errorf("held by %q, best is %q; its cgroup:\n%s", got, level, said)
	}

	setLevels(t, containmentLevels{level: picket.ContainmentCgroup, cgroupParent: filepath.Join(t.TempDir(), "gone")})
	if got, _ := containedAs(t, CommandLauncher{}); got != picket.ContainmentSubreaper {
		t.Errorf("with a cgroup that is gone it is held by %q", got)
	}
	l := CommandLauncher{Command: []string{"true"}, Containment: picket.ContainmentCgroup}
	if _, err := l.Launch(context.Background(), Job{Dir: t.TempDir()}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("forced into a cgroup that is gone: %v", err)
	}
}

// A launcher may name another program as the shim.
func TestNamedShim(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := containedAs(t,
		CommandLauncher{
			Shim:        []string{self},
			Containment: picket.ContainmentSubreaper,
		}); got != picket.ContainmentSubreaper {
		t.Errorf("with a shim it is held by %q", got)
	}
	_, err = CommandLauncher{
		Shim:    []string{"sh", "-c", "echo no shim here >&2"},
		Command: []string{"true"},
	}.Launch(context.Background(), Job{Dir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "the shim ended before the agent began: no shim here") {
		t.Errorf("with a program that is not a shim: %v", err)
	}
}

// A tree that the adapter kills in place of its shim is overdue if its last
// deadline has passed. An earlier one that the shim holds on to does not count,
// and neither does a deadline that passes after the kill.
func TestOverdueWithoutItsShim(t *testing.T) {
	const deadline = 10 * time.Second
	for _, tt := range []struct {
		name    string
		p       *shimProcess
		after   time.Duration
		kill    bool
		overdue bool
	}{
		{"the shim has time to answer", &shimProcess{ackedDeadline: deadline}, ackTimeout, false, false},
		{"the first deadline", &shimProcess{ackedDeadline: deadline}, ackTimeout + 1, true, true},
		{"the last deadline", &shimProcess{ackedDeadline: deadline, sentDeadline: deadline}, ackTimeout + 1, true,
			true},
		{"a deadline that was put off", &shimProcess{ackedDeadline: deadline, sentDeadline: time.Minute},
			ackTimeout + 1, true,
			false},
		{"killed before", &shimProcess{ackedDeadline: deadline, killSentAt: time.Second}, ackTimeout + 1, true, false},
	} {
		if _, kill, overdue := tt.p.unansweredCommands(deadline + tt.after); kill != tt.kill || overdue != tt.overdue {
			t.Errorf("%s: kill %v, overdue %v, want %v, %v", tt.name, kill, overdue, tt.kill, tt.overdue)
		}
	}
}

func TestCgroupMount(t *testing.T) {
	for _, tt := range []struct {
		name      string
		mountinfo string
		root      string
		mount     string
		wrong     string
	}{
		{"alone", "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate", "/",
			"/sys/fs/cgroup", ""},
		{"hybrid",
			"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" +
				"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw", "/", "/sys/fs/cgroup/unified", ""},
		{"bound, with a blank", `9 1 0:38 /a\040b /mnt/c\040d rw master:2 propagate_from:1 - cgroup2 none rw`, "/a b",
			"/mnt/c d", ""},
		{"old only", "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup2 rw,cpu", "", "", "no cgroup v2 is mounted"},
	} {
		file := filepath.Join(t.TempDir(), "mountinfo")
		if err := os.WriteFile(file, []byte(tt.mountinfo+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		root, mount, err := cgroupMount(file)
		if root != tt.root || mount != tt.mount || (err != nil) != (tt.wrong != "") ||
			err != nil && err.Error() != tt.wrong {
			t.Errorf("%s: %q, %q, %v", tt.name, root, mount, err)
		}
	}
}

// Leaves whose maker is gone and that nobody is in are cleared away, and only
// those; what an agent made below its own goes with it.
func TestCgroupsAreCleared(t *testing.T) {
	l := availableLevels()
	if l.level != picket.ContainmentCgroup {
		t.Skip("no cgroup here: " + l.why)
	}
	parent := cgroup{filepath.Join(l.cgroupParent, cgroupPrefix+"test-"+filepath.Base(t.TempDir()))}
	for _, leaf := range []string{"picket-run_a-0", "picket-run_a-0/of/the/agent", "picket-run_b-1", "other"} {
		if err := os.MkdirAll(filepath.Join(parent.dir, leaf), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := parent.remove(); err != nil {
			t.Error(err)
		}
	})
	removeStaleCgroups(parent.dir)
	entries, err := os.ReadDir(parent.dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		if e.IsDir() {
			left = append(left, e.Name())
		}
	}
	if !slices.Equal(left, []string{"other", "picket-run_b-1"}) {
		t.Errorf("left are %v", left)
	}
}

// A cgroup below another one is the agent's own business while it lives, and
// goes with it.
func TestNestedCgroupsGo(t *testing.T) {
	if l := availableLevels(); l.level != picket.ContainmentCgroup {
		t.Skip("no cgroup here: " + l.why)
	}
	parents, err := cgroupParents()
	if err != nil {
		t.Fatal(err)
	}
	const script = `exec 2>&1; d=$0$(sed -n 's/^0:://p' /proc/self/cgroup); mkdir -p "$d/a/b"
setsid sleep 1000 & echo $! > "$d/a/b/cgroup.procs" && echo "$d"`
	var out bytes.Buffer
	l := CommandLauncher{
		Command:     []string{"sh", "-c", script, parents[len(parents)-1]},
		Containment: picket.ContainmentCgroup,
	}
	p, err := l.Launch(context.Background(),
		Job{Dir: t.TempDir(), Stdout: &out, Lease: picket.Lease{RunID: "run_nested"}})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	dir := strings.TrimSpace(out.String())
	if !strings.Contains(dir, cgroupPrefix+"run_nested-") {
		t.Fatalf("the agent says %q and ends with %+v", dir, p.Exit())
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", dir, err)
	}
}
