package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
)

// shimProcess is an agent under a shim. What the shim does not do in time, it
// does itself.
type shimProcess struct {
	cmd         *exec.Cmd // the shim
	stderr      *bytes.Buffer
	status      *os.File
	messages    <-chan shimMessage
	stopReading chan struct{} // closed when words are not read any more
	out         *outputPipes
	record      Record
	group       cgroup
	runID       string
	execLimits  treeLimits // of programs beside the agent
	done        chan struct{}
	exit        Exited // valid once done is closed
	overdue     bool   // the same: nobody told in time that the lease goes on
	unkillable  []int  // processes that do not die

	mu            sync.Mutex
	control       *os.File
	execSocket    *os.File                       // takes programs to run beside the agent
	execWaiters   map[string]chan shimExecResult // callers that wait for the end of a program
	seq           uint64
	unacked       []unackedCommand // orders that were not acknowledged, oldest first
	ackedDeadline time.Duration    // the last deadline that the shim knows; 0 if it knows none
	sentDeadline  time.Duration    // the last deadline that was sent to it; 0 before the first
	killSentAt    time.Duration    // when Kill was called first
}

// unackedCommand is an order under way.
type unackedCommand struct {
	shimCommand
	sent time.Duration
}

const (
	// ackTimeout is what a shim gets to acknowledge an order, or to act on
	// its deadline, before the adapter acts itself.
	ackTimeout = 250 * time.Millisecond
	// shimExitTimeout is what it then gets to report the end.
	shimExitTimeout = 2 * time.Second
	// killTimeout bounds how long a killed tree is waited for. Anyone who does not die
	// for so long is stuck in the kernel, and never comes back to his program,
	// or is another user's.
	killTimeout = 30 * time.Second
)

func (p *shimProcess) PID() int              { return p.record.Leader.PID }
func (p *shimProcess) Done() <-chan struct{} { return p.done }
func (p *shimProcess) Exit() Exited          { return p.exit }
func (p *shimProcess) Containment() string   { return p.record.Containment }

// Overdue reports whether the tree was killed because its deadline had passed.
func (p *shimProcess) Overdue() bool { return p.overdue }

// Stopped implements Observer.
func (p *shimProcess) Stopped() bool { return allStopped(p.tree()) }

func (p *shimProcess) tree() []procStat { return treeOf(p.record.Shim.PID, p.group) }

// KillAt implements Deadliner.
func (p *shimProcess) KillAt(at time.Duration) { p.sendCommand(shimCommand{KillAt: int64(at)}) }

// Terminate asks the whole tree to end.
func (p *shimProcess) Terminate() { p.sendCommand(shimCommand{Signal: syscall.SIGTERM}) }

// Kill ends the whole tree.
func (p *shimProcess) Kill() { p.sendCommand(shimCommand{Signal: syscall.SIGKILL}) }

// sendCommand tells the shim. A shim that no longer exists is noticed by follow.
func (p *shimProcess) sendCommand(o shimCommand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := BootClock()
	if o.Signal == syscall.SIGKILL && p.killSentAt == 0 {
		p.killSentAt = now
	}
	if o.KillAt != 0 {
		p.sentDeadline = time.Duration(o.KillAt)
	}
	p.seq++
	o.Seq = p.seq
	p.unacked = append(p.unacked, unackedCommand{o, now})
	_ = p.control.SetWriteDeadline(time.Now().Add(ackTimeout))
	_ = sendMessage(p.control, o)
}

// recordAck takes note that the shim has done what it was told up to seq.
func (p *shimProcess) recordAck(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var still []unackedCommand
	for _, o := range p.unacked {
		switch {
		case o.Seq > seq:
			still = append(still, o)
		case o.KillAt != 0:
			p.ackedDeadline = time.Duration(o.KillAt)
		}
	}
	p.unacked = still
}

// unansweredCommands answers what the shim has let lie: signals it did not acknowledge
// and a deadline it did not act on. Each signal is answered once. It is overdue
// if the last deadline has passed, and not only one that the shim holds on to.
func (p *shimProcess) unansweredCommands(now time.Duration) (terminate, kill, overdue bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kill = p.ackedDeadline > 0 && now > p.ackedDeadline+ackTimeout
	overdue = kill && p.killSentAt == 0 && now > p.sentDeadline
	for i, o := range p.unacked {
		if now <= o.sent+ackTimeout {
			continue
		}
		switch o.Signal {
		case syscall.SIGTERM:
			terminate = true
			p.unacked[i].Signal = 0
		case syscall.SIGKILL:
			kill = true
		}
	}
	return terminate, kill, overdue
}

// stuck reports whether a tree that was killed does not die.
func (p *shimProcess) stuck(now time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killSentAt > 0 && now > p.killSentAt+killTimeout+shimExitTimeout
}

// follow reads what the shim says until the tree is gone.
func (p *shimProcess) follow() {
	p.readMessages()
	p.mu.Lock()
	p.control.Close()
	p.execSocket.Close()
	p.mu.Unlock()
	close(p.stopReading)
	p.status.Close()
	p.out.finish()
	if len(p.unkillable) > 0 {
		fmt.Fprintf(p.out.to[1], "\n[picket: these processes of the run do not die: %v]\n", p.unkillable)
	}
	p.waitForShim()
}

func (p *shimProcess) readMessages() {
	look := time.NewTicker(ackTimeout / 2)
	defer look.Stop()
	var since time.Duration // when the shim was given up
	for {
		select {
		case w, there := <-p.messages:
			switch {
			case !there:
				p.killWithoutShim()
				return
			case w.Ended != nil:
				p.exit, p.unkillable = Exited{Code: w.Ended.Code, Signal: w.Ended.Signal}, w.Ended.Left
				// The adapter may have killed the leader before the shim noticed the deadline.
				p.overdue = w.Ended.Overdue || p.overdue && p.exit.Signal == unix.SignalName(unix.SIGKILL)
				return
			case w.Ack != 0:
				p.recordAck(w.Ack)
			case w.ExecEnded != nil:
				p.execEnded(*w.ExecEnded)
			}
		case <-look.C:
			now := BootClock()
			terminate, kill, overdue := p.unansweredCommands(now)
			p.overdue = p.overdue || overdue
			if terminate {
				p.signalTree(unix.SIGTERM)
				p.signalTree(unix.SIGCONT)
			}
			if kill {
				if p.killTree(); since == 0 {
					since = now
				}
			}
			if since > 0 && now > since+shimExitTimeout || p.stuck(now) {
				p.killWithoutShim()
				return
			}
		}
	}
}

// waitForShim takes note of the shim's own end; one that hangs is ended.
func (p *shimProcess) waitForShim() {
	end := time.AfterFunc(shimExitTimeout, func() { _ = p.cmd.Process.Kill() })
	defer end.Stop()
	_ = p.cmd.Wait()
}

// killTree kills the processes of the tree that exist now, without the shim's help.
func (p *shimProcess) killTree() {
	_ = p.group.kill()
	p.signalTree(unix.SIGKILL)
}

func (p *shimProcess) signalTree(sig unix.Signal) {
	for _, id := range p.tree() {
		id.signal(sig)
	}
}

// killWithoutShim ends the tree of a shim that is dead, stopped or deaf, and then the
// shim. How the leader ended is not known: that is reported as a kill.
func (p *shimProcess) killWithoutShim() {
	p.exit = Exited{Code: 128 + int(unix.SIGKILL), Signal: unix.SignalName(unix.SIGKILL)}
	_ = p.cmd.Process.Signal(unix.SIGSTOP) // it must not start anything any more
	pause := time.Millisecond
	for end := BootClock() + killTimeout; BootClock() < end; {
		_ = p.group.kill()
		left := p.survivors()
		p.unkillable = pidsOf(left)
		if len(left) == 0 && !p.group.populated() {
			break
		}
		for _, s := range left {
			s.signal(unix.SIGKILL)
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
	_ = p.cmd.Process.Kill()
	p.group.removeSoon()
}

// survivors are the living processes of the tree, found also when the shim is
// dead and they have other parents: by the session it made and the run's
// variable, and by their own parents.
func (p *shimProcess) survivors() []procStat {
	shim := p.record.Shim
	mark := ""
	if p.record.Containment != picket.ContainmentCgroup && p.runID != "" {
		mark = "PICKET_RUN_ID=" + p.runID
	}
	all := processes(nil)
	found := map[int]procStat{}
	add := func(tree ...procStat) {
		for _, s := range tree {
			if s.PID != shim.PID && s.PID != os.Getpid() && !s.dead() {
				found[s.PID] = s
			}
		}
	}
	add(descendants(all, shim.PID)...)
	for _, s := range all {
		if s.Start >= shim.Start && (s.session == shim.PID || mark != "" && hasEnvVariable(s.PID, mark)) {
			add(s)
			add(descendants(all, s.PID)...)
		}
	}
	return slices.Collect(maps.Values(found))
}

// execSocketPair is a socket that keeps messages whole and carries files, and its
// other end.
func execSocketPair() (mine, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket: %w", err)
	}
	_ = unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 2*maxExecMessage)
	return os.NewFile(uintptr(fds[0]), "execs"), os.NewFile(uintptr(fds[1]), "execs"), nil
}

// Exec has the shim run a program beside the agent, so that it dies with the
// agent's tree whatever becomes of this process.
func (p *shimProcess) Exec(ctx context.Context, job ExecJob) (Exited, error) {
	path, err := findProgram(job.Argv[0])
	if err != nil {
		return Exited{}, err
	}
	out, err := newOutputPipes(job.Stdout, job.Stderr)
	if err != nil {
		return Exited{}, err
	}
	stdin, feed, err := os.Pipe()
	if err != nil {
		out.abandon()
		return Exited{}, fmt.Errorf("make pipe: %w", err)
	}
	defer feed.Close()
	ended, err := p.requestExec(shimExecRequest{
		ID:      job.ID,
		Path:    []byte(path),
		Args:    bytesOf(job.Argv),
		Timeout: int64(job.Timeout),
		Ceiling: p.execLimits,
	}, stdin, out.writers[0], out.writers[1])
	stdin.Close()
	if err != nil {
		out.abandon()
		return Exited{}, err
	}
	defer p.removeExecWaiter(job.ID)
	out.copyInBackground()
	go func() { // ends with feed at the latest
		if job.Stdin != nil {
			_, _ = io.Copy(feed, job.Stdin)
		}
		feed.Close()
	}()
	end := p.waitForExec(ctx, job.ID, ended)
	out.finish()
	if end.Failed != nil {
		return Exited{}, end.Failed
	}
	return Exited{Code: end.Code, Signal: end.Signal, LimitHit: end.Passed}, nil
}

// requestExec hands a program and its files to the shim.
func (p *shimProcess) requestExec(x shimExecRequest, files ...*os.File) (<-chan shimExecResult, error) {
	message, err := json.Marshal(x)
	if err != nil {
		return nil, err
	}
	if len(message) > maxExecMessage {
		return nil, errors.New("the arguments are too long")
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.execWaiters[x.ID] != nil {
		return nil, fmt.Errorf("a program %s runs already", x.ID)
	}
	conn, err := p.execSocket.SyscallConn()
	if err != nil {
		return nil, errAgentEnded
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		failed = unix.Sendmsg(int(fd), message, unix.UnixRights(fds...), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	if err != nil || errors.Is(failed, unix.EPIPE) {
		return nil, errAgentEnded
	}
	if failed != nil {
		return nil, fmt.Errorf("ask the shim: %w", failed)
	}
	ended := make(chan shimExecResult, 1)
	p.execWaiters[x.ID] = ended
	return ended, nil
}

// waitForExec waits for the end of a program; ctx ending kills it.
func (p *shimProcess) waitForExec(ctx context.Context, id string, ended <-chan shimExecResult) shimExecResult {
	stop := ctx.Done()
	for {
		select {
		case end := <-ended:
			return end
		case <-p.done: // with the whole tree
			select {
			case end := <-ended:
				return end
			default:
				return shimExecResult{Code: 128 + int(unix.SIGKILL), Signal: unix.SignalName(unix.SIGKILL)}
			}
		case <-stop:
			stop = nil
			p.sendCommand(shimCommand{EndExec: id})
		}
	}
}

func (p *shimProcess) execEnded(end shimExecResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if waiting := p.execWaiters[end.ID]; waiting != nil {
		waiting <- end // has room for the one that comes
		delete(p.execWaiters, end.ID)
	}
}

func (p *shimProcess) removeExecWaiter(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.execWaiters, id)
}
