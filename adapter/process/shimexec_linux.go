package process

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
)

// shimExecProcess is a program that the shim runs beside its agent: a child like the
// leader, so it dies with the tree and with the shim. Where the tree has a
// cgroup it gets one below that; elsewhere it is told from the agent's own
// processes by a mark in its environment.
type shimExecProcess struct {
	id          string
	mark        string
	pid         int
	group       cgroup
	timer       *time.Timer
	leaderExit  *shimExit     // once its leader was reaped
	killStarted time.Duration // when it was killed first; 0: it was not

	limits   treeLimits
	limitHit string // the limit for which it was killed
}

// maxExecMessage bounds one request for a program, in bytes.
const maxExecMessage = 256 << 10

// receiveExecs takes requests from the adapter, until it no longer exists.
func receiveExecs(socket *os.File) <-chan shimExecRequest {
	c := make(chan shimExecRequest)
	go func() {
		buf, rights := make([]byte, maxExecMessage), make([]byte, unix.CmsgSpace(3*4))
		for {
			n, nr, _, _, err := unix.Recvmsg(int(socket.Fd()), buf, rights, unix.MSG_CMSG_CLOEXEC)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n == 0 {
				return // its end is told by the control pipe
			}
			if x, ok := decodeExec(buf[:n], rights[:nr]); ok {
				c <- x
			}
		}
	}()
	return c
}

func decodeExec(message, rights []byte) (x shimExecRequest, ok bool) {
	var fds []int
	if list, err := unix.ParseSocketControlMessage(rights); err == nil && len(list) == 1 {
		fds, _ = unix.ParseUnixRights(&list[0])
	}
	if err := json.Unmarshal(message, &x); err != nil || len(fds) != 3 || len(x.Args) == 0 {
		closeFDs(fds)
		return x, false
	}
	copy(x.files[:], fds)
	return x, true
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// startExec starts a program, and tells at once when that fails.
func (s *shim) startExec(x shimExecRequest) {
	defer closeFDs(x.files[:])
	err := error(errAgentEnded)
	if s.leaderExit == nil && s.killInterval == 0 {
		err = s.forkExec(x)
	}
	if err != nil {
		failure := &shimFailure{Text: err.Error()}
		errors.As(err, &failure.Errno)
		s.tell(shimMessage{ExecEnded: &shimExecResult{ID: x.ID, Failed: failure}})
	}
}

func (s *shim) forkExec(x shimExecRequest) error {
	b := &shimExecProcess{id: x.ID, mark: execMark(s.job.RunID, x.ID), limits: x.Ceiling}
	sys := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if s.record.Containment == picket.ContainmentCgroup {
		dir, err := s.createExecCgroup(b)
		if err != nil {
			return err
		}
		defer dir.Close()
		sys.UseCgroupFD, sys.CgroupFD = true, int(dir.Fd())
	}
	limitExecFiles(0)
	pid := 0
	err := s.cgroupControllers().forkIn(b.group, func() (err error) {
		pid, err = syscall.ForkExec(string(x.Path), textsOf(x.Args), &syscall.ProcAttr{
			Dir: s.job.startDir(), Env: append(textsOf(s.job.Env), b.mark), Sys: sys,
			Files: []uintptr{uintptr(x.files[0]), uintptr(x.files[1]), uintptr(x.files[2])},
		})
		return err
	})
	if err != nil {
		b.group.removeSoon()
		return &os.PathError{Op: "fork/exec", Path: string(x.Path), Err: err}
	}
	if s.cgroupControllers().dirOf("memory", b.group) == "" {
		limitExecMemory(pid, b.limits)
	}
	b.pid = pid
	b.timer = time.AfterFunc(time.Duration(x.Timeout), func() { s.expiredExecs <- x.ID })
	s.execs[pid] = b
	s.execLimitTimer = time.After(limitCheckInterval)
	return nil
}

// createExecCgroup makes the cgroup of a program, with its limits.
func (s *shim) createExecCgroup(b *shimExecProcess) (*os.File, error) {
	b.group = cgroup{filepath.Join(s.group.dir, "exec-"+pathSeparators.Replace(b.id))}
	if err := os.Mkdir(b.group.dir, 0o755); err != nil {
		return nil, err
	}
	err := s.cgroupControllers().setLimits(b.group, b.limits)
	dir, openErr := os.Open(b.group.dir)
	if err = cmp.Or(err, openErr); err != nil {
		b.group.removeSoon()
		return nil, err
	}
	return dir, nil
}

// limitCheckInterval is how often it is looked whether programs keep to their limits.
const limitCheckInterval = 100 * time.Millisecond

// checkExecLimits kills the programs that have hit a limit: one that cannot go on as
// it wanted to would only use up its time.
func (s *shim) checkExecLimits() {
	s.execLimitTimer = nil
	for _, b := range s.execs {
		if b.killStarted > 0 {
			continue
		}
		if b.limitHit = s.hitLimit(b); b.limitHit != "" {
			b.killStarted = BootClock()
			continue
		}
		s.execLimitTimer = time.After(limitCheckInterval)
	}
	s.killEndedExecs()
}

// hitLimit tells which limit a program has hit; empty: none.
func (s *shim) hitLimit(b *shimExecProcess) string {
	if hit := s.cgroupControllers().hitLimit(b.group, b.limits); hit != "" ||
		s.cgroupControllers().dirOf("pids", b.group) != "" {
		return hit
	}
	return b.limits.exceeded(b.living)
}

// living are the processes of a program.
func (b *shimExecProcess) living() int {
	if b.group.dir != "" {
		return len(b.group.pids())
	}
	return len(b.marked())
}

// pathSeparators keeps an id from being a path.
var pathSeparators = strings.NewReplacer("/", "_", "\x00", "_")

// killExec kills a program that is there.
func (s *shim) killExec(id string) {
	for _, b := range s.execs {
		if b.id == id && b.killStarted == 0 {
			b.killStarted = BootClock()
			s.killEndedExecs()
			return
		}
	}
}

// reapExec notes the end of a program's leader; what it has left goes with it.
func (s *shim) reapExec(pid int, status unix.WaitStatus) {
	b := s.execs[pid]
	if b == nil || b.leaderExit != nil {
		return
	}
	if b.leaderExit = exitOf(status); b.killStarted == 0 && b.leaderExit.Code != 0 {
		b.limitHit = s.hitLimit(b)
	}
	if b.killStarted > 0 { // a child that was killed first may have let it end on its own
		b.leaderExit = exitOf(unix.WaitStatus(unix.SIGKILL))
	} else {
		b.killStarted = BootClock()
	}
	s.execKillTimer = time.After(0)
}

// killEndedExecs kills the processes of programs that have to end until all have exited, and then
// reports the end of these programs.
func (s *shim) killEndedExecs() {
	s.execKillTimer = nil
	for pid, b := range s.execs {
		if b.killStarted == 0 {
			continue
		}
		if !b.killOnce() && b.leaderExit != nil || BootClock() > b.killStarted+killTimeout {
			b.timer.Stop()
			delete(s.execs, pid)
			s.tell(shimMessage{ExecEnded: b.result()})
			continue
		}
		s.execKillTimer = time.After(5 * time.Millisecond)
	}
}

// killOnce kills the processes of the program that exist now and reports whether there
// was somebody.
func (b *shimExecProcess) killOnce() (somebody bool) {
	if b.group.dir != "" {
		if !b.group.populated() {
			return b.group.remove() != nil
		}
		_ = b.group.kill()
		return true
	}
	left := b.marked()
	for _, p := range left {
		p.signal(unix.SIGKILL)
	}
	return len(left) > 0
}

// marked are the living processes of a program that has no cgroup.
func (b *shimExecProcess) marked() []procStat {
	all := processes(nil)
	return markedTree(all, descendants(all, os.Getpid()), b.mark,
		func(p procStat) bool { return b.leaderExit == nil && p.PID == b.pid })
}

func (b *shimExecProcess) result() *shimExecResult {
	exit := b.leaderExit
	if exit == nil { // it does not die
		exit = exitOf(unix.WaitStatus(unix.SIGKILL))
	}
	return &shimExecResult{ID: b.id, Code: exit.Code, Signal: exit.Signal, Passed: b.limitHit}
}
