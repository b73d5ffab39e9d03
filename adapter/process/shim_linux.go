package process

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
)

// shim is the parent of one agent. It has a session of its own, is where
// orphans of the tree are re-parented to, and ends only when nobody of the
// tree is left. One goroutine on one thread does everything: the agent's
// leader dies with the thread that started it.
type shim struct {
	job        shimJob
	status     *os.File
	record     Record
	group      cgroup // no directory: the level is subreaper
	agentGroup cgroup // below that: of the agent, without the programs beside it

	alarm   *alarm
	killAt  time.Duration
	overdue bool

	leaderExit   *shimExit // once the leader was reaped
	killTimer    <-chan time.Time
	killInterval time.Duration // before the tree is killed once more; 0: it is not to be killed
	killStarted  time.Duration // when it was killed first

	execs          map[int]*shimExecProcess // programs beside the agent, by their leaders
	expiredExecs   chan string              // the ids of those whose time is over
	execKillTimer  <-chan time.Time         // the next look at those that are being killed
	execLimitTimer <-chan time.Time         // the next look at what the others take of the machine
}

// A shim is the program of its adapter, started again. It serves and exits here, before the packages
// that import this one are initialized: most of them cost time that an agent would wait for.
func init() { serveShim() }

// serveShim serves and exits where this process was started as a shim.
func serveShim() {
	version := os.Getenv(shimVariable)
	if version == "" {
		return
	}
	if err := serveShimVersion(version); err != nil {
		fmt.Fprintln(os.Stderr, ShimName+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serveShimVersion(version string) error {
	if version != shimVersion {
		return fmt.Errorf("the adapter speaks version %s, this program %s: use the same one for both", version,
			shimVersion)
	}
	runtime.LockOSThread()
	var files [fdExec + 1]*os.File
	for fd := fdControl; fd <= fdExec; fd++ {
		kind := uint32(unix.S_IFIFO)
		if fd == fdExec {
			kind = unix.S_IFSOCK
		}
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != kind {
			return fmt.Errorf("%s is set, but this is not a shim of an adapter", shimVariable)
		}
		files[fd] = os.NewFile(uintptr(fd), "")
	}
	// Neither these nor what the adapter was given by who started it is for the
	// agent.
	if err := unix.CloseRange(fdControl, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		for fd := fdControl; fd <= fdExec; fd++ {
			unix.CloseOnExec(fd)
		}
	}
	// For ps; a shim under another name does its duty, too.
	_ = os.WriteFile("/proc/self/comm", []byte(ShimName), 0)
	// No other process of the user, the agent included, reads its memory or its
	// descriptors. What it starts is not affected.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	children := catchSignals()
	control := jsontext.NewDecoder(files[fdControl])
	s := &shim{status: files[fdStatus], execs: map[int]*shimExecProcess{}, expiredExecs: make(chan string)}
	if err := json.UnmarshalDecode(control, &s.job); err != nil {
		return nil // the adapter is gone, and there is nothing to end
	}
	err := s.start(files[fdStdout], files[fdStderr])
	files[fdStdout].Close()
	files[fdStderr].Close()
	if err != nil {
		failure := &shimFailure{Text: err.Error()}
		errors.As(err, &failure.Errno)
		return sendMessage(s.status, shimMessage{Failed: failure})
	}
	s.tell(shimMessage{Started: &s.record})
	s.superviseTree(receiveMessages[shimCommand](control, nil), receiveExecs(files[fdExec]), children)
	s.tell(shimMessage{Ended: s.leaderExit})
	return nil
}

// catchSignals takes the signals that a terminal or a service manager sends to everybody: the shim
// ends with its tree. They are caught, not ignored, which the agent would inherit. The channel
// reports the ends of children.
func catchSignals() <-chan os.Signal {
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP)
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	return children
}

// tell reaches an adapter that is there; the shim's duty does not depend on it.
func (s *shim) tell(w shimMessage) { _ = sendMessage(s.status, w) }

// start starts the agent's leader, in its cgroup from its first instruction.
func (s *shim) start(stdout, stderr *os.File) error {
	self, _ := readProcStat(os.Getpid())
	s.record = Record{BootID: BootID(), Shim: self.processID, Containment: picket.ContainmentSubreaper}
	sys := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if s.job.Containment == picket.ContainmentCgroup {
		dir, err := s.createCgroup()
		if err != nil && s.job.Forced {
			return err
		}
		if err == nil {
			defer dir.Close()
			sys.UseCgroupFD, sys.CgroupFD = true, int(dir.Fd())
			s.record.Cgroup, s.record.Containment = s.group.dir, picket.ContainmentCgroup
		}
	}
	err := s.launch(sys, stdout, stderr)
	if err != nil {
		s.group.removeSoon()
	}
	return err
}

func (s *shim) launch(sys *syscall.SysProcAttr, stdout, stderr *os.File) (err error) {
	if s.alarm, err = newAlarm(); err != nil {
		return err
	}
	if err = s.setDeadline(time.Duration(s.job.KillAt)); err != nil {
		return err
	}
	// Written before there is a process to forget, and again with its name.
	if err = s.saveRecord(); err != nil {
		return err
	}
	stdin, err := s.job.openStdin()
	if err != nil {
		return err
	}
	defer stdin.Close() // the agent alone holds it open
	pid := 0
	err = s.cgroupControllers().forkIn(s.group, func() (err error) {
		pid, err = syscall.ForkExec(string(s.job.Path), textsOf(s.job.Args), &syscall.ProcAttr{
			Dir: s.job.startDir(), Env: textsOf(s.job.Env), Sys: sys,
			Files: []uintptr{stdin.Fd(), stdout.Fd(), stderr.Fd()},
		})
		return err
	})
	if err != nil {
		return &os.PathError{Op: "fork/exec", Path: string(s.job.Path), Err: err}
	}
	leader, _ := readProcStat(pid) // its child, so it is there even when it has ended
	s.record.Leader = leader.processID
	_ = s.saveRecord() // the shim and the cgroup are on record already
	return nil
}

func (s *shim) saveRecord() error {
	if len(s.job.StateDir) == 0 {
		return nil
	}
	return s.record.write(string(s.job.StateDir))
}

func (s *shim) setDeadline(at time.Duration) error {
	s.killAt = at
	return s.alarm.set(at)
}

// superviseTree returns when the whole tree is gone, or cannot be killed. The
// tree is killed when its leader has ended, when the deadline has passed, when
// the adapter orders it and when the adapter has ended.
func (s *shim) superviseTree(orders <-chan shimCommand, execs <-chan shimExecRequest, children <-chan os.Signal) {
	for {
		if childless := s.reap(); s.leaderExit != nil {
			if s.killInterval == 0 {
				s.kill()
				continue
			}
			if childless && s.removeIfEmpty() || s.hasGivenUp() {
				s.leaderExit.Overdue = s.overdue
				return
			}
		}
		select {
		case o, there := <-orders:
			if !there {
				orders = nil
				s.kill()
				break
			}
			s.handleCommand(o)
		case <-s.alarm.rings:
			if s.killAt > 0 && BootClock() >= s.killAt {
				s.overdue = s.overdue || s.killInterval == 0
				s.kill()
			}
		case <-s.killTimer:
			s.killOnce()
		case x := <-execs:
			s.startExec(x)
		case id := <-s.expiredExecs:
			s.killExec(id)
		case <-s.execKillTimer:
			s.killEndedExecs()
		case <-s.execLimitTimer:
			s.checkExecLimits()
		case <-children:
		}
	}
}

func (s *shim) handleCommand(o shimCommand) {
	switch {
	case o.Signal == unix.SIGKILL:
		s.kill()
	case o.Signal == unix.SIGTERM:
		s.terminate()
	case o.EndExec != "":
		s.killExec(o.EndExec)
	case o.KillAt != 0:
		if s.setDeadline(time.Duration(o.KillAt)) != nil {
			return // unacknowledged: the adapter holds on to the old deadline
		}
	}
	s.tell(shimMessage{Ack: o.Seq})
}

// reap buries the dead and reports whether nobody is left that it could bury.
func (s *shim) reap() (childless bool) {
	if leader, ok := readProcStat(s.record.Leader.PID); s.leaderExit == nil && ok && leader.dead() {
		// While the dead leader holds its id, the group cannot be a stranger's.
		_ = unix.Kill(-leader.PID, unix.SIGKILL)
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return true
		case pid == 0:
			return false
		case pid == s.record.Leader.PID && s.leaderExit == nil:
			s.leaderExit = exitOf(status)
		default:
			s.reapExec(pid, status)
		}
	}
}

func exitOf(status unix.WaitStatus) *shimExit {
	if status.Signaled() {
		return &shimExit{Code: 128 + int(status.Signal()), Signal: unix.SignalName(status.Signal())}
	}
	return &shimExit{Code: status.ExitStatus()}
}

// hasGivenUp reports whether waiting is useless for the rest of the tree, such
// as programs of another user.
func (s *shim) hasGivenUp() bool {
	if BootClock() < s.killStarted+killTimeout {
		return false
	}
	s.leaderExit.Left = pidsOf(treeOf(os.Getpid(), s.group))
	return true
}

// removeIfEmpty removes the cgroup when nobody is in it.
func (s *shim) removeIfEmpty() bool {
	return !s.group.populated() && s.group.remove() == nil
}

// kill ends the tree. It repeats until no process is left, because a process that forks meanwhile
// is found in the next round. The first round kills the cgroup and the leader's process group: that
// is the whole tree of most agents. The rounds after it look at every process of the machine.
func (s *shim) kill() {
	if s.killInterval == 0 {
		s.killInterval, s.killStarted = time.Millisecond, BootClock()
		s.killGroups()
		s.killTimer = time.After(s.killInterval)
	}
}

// killGroups kills the cgroup and the process group of the leader.
func (s *shim) killGroups() {
	_ = s.group.kill()
	if s.leaderExit == nil {
		_ = unix.Kill(-s.record.Leader.PID, unix.SIGKILL)
	}
}

// killOnce kills everybody who is there now.
func (s *shim) killOnce() {
	s.killGroups() // what they leave, the rest of this and the next round finds
	if !s.reap() {
		self := os.Getpid()
		all := processes(func(p procStat) {
			if p.parent == self && !p.dead() {
				s.killChild(p)
			}
		})
		for _, p := range descendants(all, self) {
			if p.parent != self {
				p.signal(unix.SIGKILL)
			}
		}
	}
	s.killTimer = time.After(s.killInterval)
	s.killInterval = min(2*s.killInterval, 100*time.Millisecond)
}

// killChild kills a child and its process group, which includes processes that it is just forking.
// The id belongs to the child until it is reaped. Only descendants can be in a group of a
// descendant except for the shim's own one.
func (s *shim) killChild(p procStat) {
	if p.group != os.Getpid() {
		_ = unix.Kill(-p.group, unix.SIGKILL)
	}
	_ = unix.Kill(p.PID, unix.SIGKILL)
}

// terminate asks everybody to end, once each, and wakes those who are stopped.
func (s *shim) terminate() {
	if s.leaderExit != nil {
		return
	}
	leader := s.record.Leader.PID
	tree := treeOf(os.Getpid(), s.group)
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGCONT} {
		_ = unix.Kill(-leader, sig)
		for _, p := range tree {
			if p.group != leader {
				p.signal(sig)
			}
		}
	}
}

// treeOf are the living processes of a tree: the descendants of its shim and
// who else is in its cgroup.
func treeOf(shim int, group cgroup) []procStat {
	tree := descendants(processes(nil), shim)
	known := map[int]bool{}
	for _, p := range tree {
		known[p.PID] = true
	}
	for _, pid := range group.pids() {
		if p, ok := readProcStat(pid); ok && !known[pid] && !p.dead() {
			tree = append(tree, p)
		}
	}
	return tree
}

// shimCgroup is the cgroup that a shim makes for its agent.
func shimCgroup(in, run string, shim int) cgroup {
	return cgroup{filepath.Join(in, fmt.Sprintf("%s%s-%d", cgroupPrefix, filepath.Base(run), shim))}
}

// createCgroup makes the agent's cgroup.
func (s *shim) createCgroup() (*os.File, error) {
	group := shimCgroup(s.job.CgroupIn, s.job.RunID, os.Getpid())
	if err := os.Mkdir(group.dir, 0o755); err != nil {
		return nil, err
	}
	inside := cgroup{filepath.Join(group.dir, "agent")}
	err := s.job.Controls.setLimits(group, s.job.Ceiling)
	if err == nil {
		err = s.job.Controls.delegateBelow(group)
	}
	if err == nil {
		err = os.Mkdir(inside.dir, 0o755)
	}
	dir, openErr := os.Open(inside.dir)
	if err = cmp.Or(err, openErr); err != nil {
		group.removeSoon()
		return nil, err
	}
	s.group, s.agentGroup = group, inside
	return dir, nil
}

// cgroupControllers are those of the agent's cgroup, none without one.
func (s *shim) cgroupControllers() controllerDirs {
	if s.group.dir == "" {
		return nil
	}
	return s.job.Controls
}
