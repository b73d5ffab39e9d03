package process

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cgroup is a directory of the unified hierarchy (cgroup v2). Without a directory it
// stands for a tree that has none: nobody is in it, and there is nothing to kill or remove.
type cgroup struct{ dir string }

// cgroupParents are the directories in which a leaf may be made, best first:
// the cgroup of this process, then those around it.
func cgroupParents() ([]string, error) {
	root, mount, err := cgroupMount("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	own, err := ownCgroup("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(root, own)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return nil, fmt.Errorf("the cgroup of this process (%s) is outside of what is mounted at %s", own, mount)
	}
	var dirs []string
	for dir := filepath.Join(mount, rel); ; dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
		if dir == mount {
			return dirs, nil
		}
	}
}

// cgroupMount finds where the unified hierarchy is mounted, which part of it,
// and where; in a hybrid set-up it is beside the older ones.
func cgroupMount(mountinfo string) (root, mount string, err error) {
	f, err := os.Open(mountinfo)
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// id parent device root mount options … - type source options
		what, kind, ok := strings.Cut(lines.Text(), " - ")
		if fields := strings.Fields(what); ok && len(fields) >= 5 && strings.HasPrefix(kind, "cgroup2 ") {
			return unescapeMountinfo(fields[3]), unescapeMountinfo(fields[4]), nil
		}
	}
	return "", "", errors.New("no cgroup v2 is mounted")
}

// unescapeMountinfo undoes the octal escapes of mountinfo.
func unescapeMountinfo(s string) string {
	for _, c := range []string{" ", "\t", "\n", `\`} {
		s = strings.ReplaceAll(s, fmt.Sprintf(`\%03o`, c[0]), c)
	}
	return s
}

func ownCgroup(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSuffix(path, "\n"), nil
		}
	}
	return "", errors.New("this process is in no cgroup v2")
}

// kill sends SIGKILL to every process in the leaf and below, at once: a fork
// cannot outrun it.
func (c cgroup) kill() error {
	if c.dir == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(c.dir, "cgroup.kill"), []byte("1"), 0)
}

// populated reports whether a living process is in the leaf or below.
func (c cgroup) populated() bool {
	b, err := os.ReadFile(filepath.Join(c.dir, "cgroup.events"))
	return c.dir != "" && err == nil && slices.Contains(strings.Split(string(b), "\n"), "populated 1")
}

// pids are the processes in the leaf and below.
func (c cgroup) pids() []int {
	var all []int
	_ = filepath.WalkDir(c.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "cgroup.procs" {
			return nil // what is gone holds no processes
		}
		b, _ := os.ReadFile(path)
		for line := range strings.Lines(string(b)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
				all = append(all, pid)
			}
		}
		return nil
	})
	return all
}

// remove deletes the leaf, its twins, and what the agent made below them.
func (c cgroup) remove() error {
	if c.dir == "" {
		return nil
	}
	err := removeTree(c.dir)
	for _, older := range v1Dirs() {
		err = errors.Join(err, removeTree(filepath.Join(older, c.name())))
	}
	return err
}

func removeTree(root string) error {
	var dirs []string
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for _, dir := range slices.Backward(dirs) {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
	}
	return nil
}

// removeSoon removes a leaf whose processes were killed. The kernel may report their end a moment
// before it removes them from the leaf.
func (c cgroup) removeSoon() {
	for end := BootClock() + time.Second; c.remove() != nil && BootClock() < end; {
		time.Sleep(time.Millisecond)
	}
}

// removeStaleCgroups removes the leaves in a directory that nobody is in, and whose maker,
// named at their end, no longer exists.
func removeStaleCgroups(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, cgroupPrefix+"*"))
	for _, dir := range dirs {
		pid, err := strconv.Atoi(dir[strings.LastIndexByte(dir, '-')+1:])
		if _, there := readProcStat(pid); err == nil && !there {
			_ = cgroup{dir}.remove() // fails where somebody is left
		}
	}
}

// cgroupPrefix begins the name of every leaf, and the id of the process that
// made it ends it.
const cgroupPrefix = "picket-"

// probeCgroups answers the directory in which leaves can be made, found by
// making one, starting a process in it and removing it.
func probeCgroups() (parent string, found controllerDirs, err error) {
	dirs, err := cgroupParents()
	if err != nil {
		return "", nil, err
	}
	var failures []error
	for _, dir := range dirs {
		if err := probeCgroup(dir); err != nil {
			failures = append(failures, err)
			continue
		}
		// A process in the subgroup of a service (DelegateSubgroup=) leaves its
		// runs beside that.
		if next := filepath.Dir(dir); isDelegated(next) && probeCgroup(next) == nil && enableControllers(next) == nil {
			dir = next
		}
		removeStaleCgroups(dir)
		return dir, probeControllers(dir), nil
	}
	return "", nil, errors.Join(failures...)
}

func probeCgroup(parent string) error {
	c := cgroup{filepath.Join(parent, fmt.Sprintf("%strial-%d", cgroupPrefix, os.Getpid()))}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return err
	}
	defer c.removeSoon()
	dir, err := os.Open(c.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	// A program without a name cannot be executed, but the process that tries
	// to is there by then. It goes before the kill: kernels are known that kill
	// anyone who is started in a cgroup that was killed once.
	pid, err := syscall.ForkExec("", []string{""}, &syscall.ProcAttr{
		Sys: &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())},
	})
	if err == nil {
		_, _ = unix.Wait4(pid, nil, 0, nil)
		return fmt.Errorf("a process that was started in %s is killed", c.dir)
	}
	if !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("start a process in %s: %w", c.dir, err)
	}
	return c.kill()
}
