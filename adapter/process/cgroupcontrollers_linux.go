package process

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// controllers are those that limit a cgroup.
var controllers = []string{"pids", "memory"}

// v1Dirs are the directories of older hierarchies (cgroup v1), by
// controller, in which a leaf gets a twin: where this process is. A hybrid
// machine has processes in cgroups of both kinds.
var v1Dirs = sync.OnceValue(func() map[string]string {
	places := map[string]string{}
	for _, controller := range controllers {
		if dir, err := v1Dir(controller, "/proc/self/mountinfo", "/proc/self/cgroup"); err == nil {
			places[controller] = dir
		}
	}
	return places
})

func v1Dir(controller, mountinfo, cgroups string) (string, error) {
	b, err := os.ReadFile(cgroups)
	if err != nil {
		return "", err
	}
	own := ""
	for line := range strings.Lines(string(b)) {
		// number:controllers:path
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && slices.Contains(strings.Split(parts[1], ","), controller) {
			own = parts[2]
		}
	}
	if own == "" {
		return "", fmt.Errorf("this process is in no older cgroup of %s", controller)
	}
	f, err := os.Open(mountinfo)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		what, kind, ok := strings.Cut(lines.Text(), " - ")
		fields, options := strings.Fields(what), strings.Fields(kind)
		if !ok || len(fields) < 5 || len(options) < 3 || options[0] != "cgroup" ||
			!slices.Contains(strings.Split(options[2], ","), controller) {
			continue
		}
		rel, err := filepath.Rel(unescapeMountinfo(fields[3]), own)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			continue
		}
		return filepath.Join(unescapeMountinfo(fields[4]), rel), nil
	}
	return "", fmt.Errorf("no older cgroup of %s is mounted", controller)
}

// dirOf is where a controller limits a leaf; empty: nowhere.
func (c controllerDirs) dirOf(controller string, leaf cgroup) string {
	at := c[controller]
	switch {
	case at.Unified:
		return leaf.dir
	case at.V1Dir != "":
		return filepath.Join(at.V1Dir, leaf.name())
	}
	return ""
}

// name is the part of a leaf's path that begins with the leaf of its run.
func (c cgroup) name() string {
	return c.dir[strings.LastIndex(c.dir, "/"+cgroupPrefix)+1:]
}

// setLimits limits a leaf before anybody is in it.
func (c controllerDirs) setLimits(leaf cgroup, to treeLimits) error {
	for _, controller := range controllers {
		if c[controller].V1Dir == "" {
			continue
		}
		if err := os.MkdirAll(c.dirOf(controller, leaf), 0o755); err != nil {
			return err
		}
	}
	if dir := c.dirOf("pids", leaf); dir != "" && to.Processes > 0 {
		if err := writeControl(dir, "pids.max", strconv.Itoa(to.Processes)); err != nil {
			return err
		}
	}
	if dir := c.dirOf("memory", leaf); dir != "" && to.Memory > 0 {
		return c.setMemoryLimit(dir, strconv.FormatInt(to.Memory, 10))
	}
	return nil
}

// delegateBelow lets leaves below a leaf have limits of their own. It takes nobody in
// from then on.
func (c controllerDirs) delegateBelow(leaf cgroup) error {
	if !c["pids"].Unified {
		return nil
	}
	return writeControl(leaf.dir, "cgroup.subtree_control", "+pids +memory")
}

// setMemoryLimit leaves no way out through swap, where that is counted.
func (c controllerDirs) setMemoryLimit(dir, bytes string) error {
	if c["memory"].Unified {
		_ = writeControl(dir, "memory.swap.max", "0")
		_ = writeControl(dir, "memory.oom.group", "1")
		return writeControl(dir, "memory.max", bytes)
	}
	err := writeControl(dir, "memory.limit_in_bytes", bytes)
	_ = writeControl(dir, "memory.memsw.limit_in_bytes", bytes)
	return err
}

// hitLimit tells which limit of a leaf was hit; empty: none.
func (c controllerDirs) hitLimit(leaf cgroup, to treeLimits) string {
	if dir := c.dirOf("pids", leaf); dir != "" && to.Processes > 0 && eventCounted(dir, "pids.events", "max") {
		return to.tooManyProcesses()
	}
	file := "memory.oom_control"
	if c["memory"].Unified {
		file = "memory.events"
	}
	if dir := c.dirOf("memory", leaf); dir != "" && to.Memory > 0 && eventCounted(dir, file, "oom_kill") {
		return to.tooMuchMemory()
	}
	return ""
}

// eventCounted reports whether a file of a cgroup has a line NAME with a number
// above 0.
func eventCounted(dir, file, name string) bool {
	b, _ := os.ReadFile(filepath.Join(dir, file))
	for line := range strings.Lines(string(b)) {
		if key, n, _ := strings.Cut(strings.TrimSpace(line), " "); key == name && n != "0" {
			return true
		}
	}
	return false
}

// forkIn calls fork on this thread while it is in the twins of a leaf, so that
// who is forked begins there: only the unified hierarchy can be named to a fork.
// The goroutine is locked to its thread.
func (c controllerDirs) forkIn(leaf cgroup, fork func() error) error {
	for _, controller := range controllers {
		at := c[controller].V1Dir
		if at == "" {
			continue
		}
		if err := writeControl(c.dirOf(controller, leaf), "tasks", "0"); err != nil {
			return err
		}
		defer func() { _ = writeControl(at, "tasks", "0") }()
	}
	return fork()
}

func writeControl(dir, file, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// probeControllers finds what limits leaves made in a directory of the unified
// hierarchy.
func probeControllers(parent string) controllerDirs {
	found := controllerDirs{}
	if enableControllers(parent) == nil {
		for _, controller := range controllers {
			found[controller] = controllerDir{Unified: true}
		}
		return found
	}
	for controller, dir := range v1Dirs() {
		if probeV1(controller, dir) == nil {
			found[controller] = controllerDir{V1Dir: dir}
			removeStaleCgroups(dir)
		}
	}
	return found
}

// enableControllers turns the controllers on for leaves in a directory. A cgroup with processes
// cannot do that. If this process is alone in a cgroup that was delegated to it, it moves into one
// below.
func enableControllers(parent string) error {
	on := func() error { return writeControl(parent, "cgroup.subtree_control", "+pids +memory") }
	err := on()
	if !errors.Is(err, unix.EBUSY) || !mayReconfigure(parent) {
		return err
	}
	self := strconv.Itoa(os.Getpid())
	if b, err := os.ReadFile(filepath.Join(parent, "cgroup.procs")); err != nil ||
		strings.TrimSpace(string(b)) != self {
		return fmt.Errorf("others are in %s", parent)
	}
	own := cgroup{filepath.Join(parent, cgroupPrefix+"adapter-"+self)}
	if err := os.Mkdir(own.dir, 0o755); err != nil {
		return err
	}
	if err := writeControl(own.dir, "cgroup.procs", self); err != nil {
		own.removeSoon()
		return err
	}
	return on()
}

// mayReconfigure reports whether a cgroup is this program's to arrange: it was
// delegated, or is the uppermost that can be seen, as in a container.
func mayReconfigure(dir string) bool {
	_, mount, err := cgroupMount("/proc/self/mountinfo")
	return isDelegated(dir) || err == nil && dir == mount
}

// isDelegated reports whether systemd says that a cgroup is for the program in it
// to arrange (Delegate=yes).
func isDelegated(dir string) bool {
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		mark := make([]byte, 8)
		if n, err := unix.Getxattr(dir, name, mark); err == nil && string(mark[:n]) == "1" {
			return true
		}
	}
	return false
}

// probeV1 makes a twin, goes there and back, and removes it.
func probeV1(controller, dir string) error {
	twin := filepath.Join(dir, fmt.Sprintf("%strial-%d", cgroupPrefix, os.Getpid()))
	if err := os.Mkdir(twin, 0o755); err != nil {
		return err
	}
	defer func() { _ = unix.Rmdir(twin) }()
	file, value := "pids.max", "max"
	if controller == "memory" {
		file, value = "memory.limit_in_bytes", "-1"
	}
	if err := writeControl(twin, file, value); err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := writeControl(twin, "tasks", "0"); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	if err := writeControl(dir, "tasks", "0"); err != nil {
		return err // the thread stays locked, and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return nil
}
