package adapter

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

// besideExec is a program that the shim runs beside its agent: a child like the
// leader, so it dies with the tree and with the shim. Where the tree has a
// cgroup it gets one below that; elsewhere it is told from the agent's own
// processes by a mark in its environment.
type besideExec struct {
	id    string
	mark  string
	pid   int
	group cgroup
	timer *time.Timer
	end   *shimEnd      // once its leader was reaped
	since time.Duration // when it was killed first; 0: it was not

	ceiling ceiling
	passed  string // the limit for which it was killed
}

// maxExecMessage bounds one request for a program, in bytes.
const maxExecMessage = 256 << 10

// listenExecs takes requests from the adapter, until it is no more.
func listenExecs(socket *os.File) <-chan shimExec {
	c := make(chan shimExec)
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
			if x, ok := parseExec(buf[:n], rights[:nr]); ok {
				c <- x
			}
		}
	}()
	return c
}

func parseExec(message, rights []byte) (x shimExec, ok bool) {
	var fds []int
	if list, err := unix.ParseSocketControlMessage(rights); err == nil && len(list) == 1 {
		fds, _ = unix.ParseUnixRights(&list[0])
	}
	if err := json.Unmarshal(message, &x); err != nil || len(fds) != 3 || len(x.Args) == 0 {
		closeAll(fds)
		return x, false
	}
	copy(x.files[:], fds)
	return x, true
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// startBeside starts a program, and tells at once when that fails.
func (s *shim) startBeside(x shimExec) {
	defer closeAll(x.files[:])
	err := error(errNotRunning)
	if s.end == nil && s.pause == 0 {
		err = s.forkBeside(x)
	}
	if err != nil {
		failure := &shimFailure{Text: err.Error()}
		errors.As(err, &failure.Errno)
		s.tell(shimWord{ExecEnded: &shimExecEnd{ID: x.ID, Failed: failure}})
	}
}

func (s *shim) forkBeside(x shimExec) error {
	b := &besideExec{id: x.ID, mark: execMark(s.job.RunID, x.ID), ceiling: x.Ceiling}
	sys := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if s.record.Containment == picket.ContainmentCgroup {
		dir, err := s.encloseBeside(b)
		if err != nil {
			return err
		}
		defer dir.Close()
		sys.UseCgroupFD, sys.CgroupFD = true, int(dir.Fd())
	}
	limitExec(0)
	pid := 0
	err := s.controls().within(b.group, func() (err error) {
		pid, err = syscall.ForkExec(string(x.Path), textsOf(x.Args), &syscall.ProcAttr{
			Dir: s.job.startDir(), Env: append(textsOf(s.job.Env), b.mark), Sys: sys,
			Files: []uintptr{uintptr(x.files[0]), uintptr(x.files[1]), uintptr(x.files[2])},
		})
		return err
	})
	if err != nil {
		if b.group.dir != "" {
			b.group.discard()
		}
		return &os.PathError{Op: "fork/exec", Path: string(x.Path), Err: err}
	}
	if s.controls().dirOf("memory", b.group) == "" {
		limitData(pid, b.ceiling)
	}
	b.pid = pid
	b.timer = time.AfterFunc(time.Duration(x.Timeout), func() { s.late <- x.ID })
	s.execs[pid] = b
	s.peek = time.After(peekEvery)
	return nil
}

// encloseBeside makes the cgroup of a program, with its limits.
func (s *shim) encloseBeside(b *besideExec) (*os.File, error) {
	b.group = cgroup{filepath.Join(s.group.dir, "exec-"+strings.Map(plainName, b.id))}
	if err := os.Mkdir(b.group.dir, 0o755); err != nil {
		return nil, err
	}
	err := s.controls().bound(b.group, b.ceiling)
	dir, openErr := os.Open(b.group.dir)
	if err = cmp.Or(err, openErr); err != nil {
		b.group.discard()
		return nil, err
	}
	return dir, nil
}

// peekEvery is how often it is looked whether programs keep to their limits.
const peekEvery = 100 * time.Millisecond

// peekBeside kills the programs that have hit a limit: one that cannot go on as
// it wanted to would only use up its time.
func (s *shim) peekBeside() {
	s.peek = nil
	for _, b := range s.execs {
		if b.since > 0 {
			continue
		}
		if b.passed = s.passed(b); b.passed != "" {
			b.since = bootClock()
			continue
		}
		s.peek = time.After(peekEvery)
	}
	s.lookBeside()
}

// passed tells which limit a program has hit; empty: none.
func (s *shim) passed(b *besideExec) string {
	if hit := s.controls().passed(b.group, b.ceiling); hit != "" || s.controls().dirOf("pids", b.group) != "" {
		return hit
	}
	return b.ceiling.exceeded(b.living)
}

// living are the processes of a program.
func (b *besideExec) living() int {
	if b.group.dir != "" {
		return len(b.group.pids())
	}
	return len(b.marked())
}

// plainName keeps an id from being a path.
func plainName(r rune) rune {
	if r == '/' || r == 0 {
		return '_'
	}
	return r
}

// endBeside kills a program that is there.
func (s *shim) endBeside(id string) {
	for _, b := range s.execs {
		if b.id == id && b.since == 0 {
			b.since = bootClock()
			s.lookBeside()
			return
		}
	}
}

// buryBeside notes the end of a program's leader; what it has left goes with it.
func (s *shim) buryBeside(pid int, status unix.WaitStatus) {
	b := s.execs[pid]
	if b == nil || b.end != nil {
		return
	}
	if b.end = endOf(status); b.since == 0 && b.end.Code != 0 {
		b.passed = s.passed(b)
	}
	if b.since > 0 { // a child that was killed first may have let it end by itself
		b.end = endOf(unix.WaitStatus(unix.SIGKILL))
	} else {
		b.since = bootClock()
	}
	s.look = time.After(0)
}

// lookBeside strikes at the programs that are being killed, until nobody of
// them is left, and then tells of their end.
func (s *shim) lookBeside() {
	s.look = nil
	for pid, b := range s.execs {
		if b.since == 0 {
			continue
		}
		if !b.strike() && b.end != nil || bootClock() > b.since+dieWithin {
			b.timer.Stop()
			delete(s.execs, pid)
			s.tell(shimWord{ExecEnded: b.told()})
			continue
		}
		s.look = time.After(5 * time.Millisecond)
	}
}

// strike kills whoever of the program is there now and reports whether there
// was somebody.
func (b *besideExec) strike() (somebody bool) {
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
func (b *besideExec) marked() []processStat {
	all := processes(nil)
	return markedTree(all, descendants(all, os.Getpid()), b.mark,
		func(p processStat) bool { return b.end == nil && p.PID == b.pid })
}

func (b *besideExec) told() *shimExecEnd {
	if b.end == nil { // it does not die
		return &shimExecEnd{
			ID:     b.id,
			Code:   128 + int(unix.SIGKILL),
			Signal: unix.SignalName(unix.SIGKILL),
			Passed: b.passed,
		}
	}
	return &shimExecEnd{ID: b.id, Code: b.end.Code, Signal: b.end.Signal, Passed: b.passed}
}
