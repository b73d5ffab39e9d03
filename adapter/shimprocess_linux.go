package adapter

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// shimProcess is an agent under a shim. What the shim does not do in time, it
// does itself.
type shimProcess struct {
	cmd     *exec.Cmd // the shim
	said    *bytes.Buffer
	status  *os.File
	words   <-chan shimWord
	quit    chan struct{} // closed when words are not read any more
	out     *drain
	delay   time.Duration
	record  processRecord
	group   cgroup
	runID   string
	ceiling ceiling // of programs beside the agent
	done    chan struct{}
	exit    Exited // valid once done is closed
	overdue bool   // the same: nobody told in time that the lease goes on
	left    []int  // processes that do not die

	mu      sync.Mutex
	control *os.File
	execs   *os.File                    // takes programs to run beside the agent
	beside  map[string]chan shimExecEnd // who waits for the end of one
	seq     uint64
	open    []pending     // orders that were not acknowledged, oldest first
	due     time.Duration // the last deadline that the shim knows; 0 is none
	latest  time.Duration // the last deadline that it was told; 0 is none
	killed  time.Duration // when Kill was called first
}

// pending is an order under way.
type pending struct {
	shimOrder
	sent time.Duration
}

const (
	// answerWithin is what a shim gets to acknowledge an order, or to act on
	// its deadline, before the adapter acts itself.
	answerWithin = 250 * time.Millisecond
	// reportWithin is what it then gets to report the end.
	reportWithin = 2 * time.Second
	// dieWithin bounds how long a killed tree is waited for. Who does not die
	// for so long is stuck in the kernel, and never comes back to his program,
	// or is another user's.
	dieWithin = 30 * time.Second
)

func (p *shimProcess) PID() int              { return p.record.Leader.PID }
func (p *shimProcess) Done() <-chan struct{} { return p.done }
func (p *shimProcess) Exit() Exited          { return p.exit }
func (p *shimProcess) Containment() string   { return p.record.Containment }

// Overdue reports whether the tree was killed because its deadline had passed.
func (p *shimProcess) Overdue() bool { return p.overdue }

// Stopped implements Observer.
func (p *shimProcess) Stopped() bool { return allStopped(p.tree()) }

func (p *shimProcess) tree() []processStat { return treeOf(p.record.Shim.PID, p.group) }

// KillAt implements Deadliner.
func (p *shimProcess) KillAt(at time.Duration) { p.order(shimOrder{KillAt: int64(at)}) }

// Terminate asks the whole tree to end.
func (p *shimProcess) Terminate() { p.order(shimOrder{Signal: syscall.SIGTERM}) }

// Kill ends the whole tree.
func (p *shimProcess) Kill() { p.order(shimOrder{Signal: syscall.SIGKILL}) }

// order tells the shim. A shim that is no more is noticed by follow.
func (p *shimProcess) order(o shimOrder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := bootClock()
	if o.Signal == syscall.SIGKILL && p.killed == 0 {
		p.killed = now
	}
	if o.KillAt != 0 {
		p.latest = time.Duration(o.KillAt)
	}
	p.seq++
	o.Seq = p.seq
	p.open = append(p.open, pending{o, now})
	_ = p.control.SetWriteDeadline(time.Now().Add(answerWithin))
	_ = speak(p.control, o)
}

// acknowledged takes note that the shim has done what it was told up to seq.
func (p *shimProcess) acknowledged(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var still []pending
	for _, o := range p.open {
		switch {
		case o.Seq > seq:
			still = append(still, o)
		case o.KillAt != 0:
			p.due = time.Duration(o.KillAt)
		}
	}
	p.open = still
}

// unheard answers what the shim has let lie: signals it did not acknowledge
// and a deadline it did not act on. Each signal is answered once. It is overdue
// if the last deadline has passed, and not only one that the shim holds on to.
func (p *shimProcess) unheard(now time.Duration) (terminate, kill, overdue bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kill = p.due > 0 && now > p.due+answerWithin
	overdue = kill && p.killed == 0 && now > p.latest
	for i, o := range p.open {
		if now <= o.sent+answerWithin {
			continue
		}
		switch o.Signal {
		case syscall.SIGTERM:
			terminate = true
			p.open[i].Signal = 0
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
	return p.killed > 0 && now > p.killed+dieWithin+reportWithin
}

// follow reads what the shim says until the tree is gone.
func (p *shimProcess) follow() {
	defer close(p.done)
	p.heed()
	p.mu.Lock()
	p.control.Close()
	p.execs.Close()
	p.mu.Unlock()
	close(p.quit)
	p.status.Close()
	p.out.finish(max(p.delay, 0), time.Second)
	if len(p.left) > 0 {
		fmt.Fprintf(p.out.to[1], "\n[picket: these processes of the run do not die: %v]\n", p.left)
	}
	p.leave()
}

func (p *shimProcess) heed() {
	look := time.NewTicker(answerWithin / 2)
	defer look.Stop()
	var since time.Duration // when the shim was given up
	for {
		select {
		case w, there := <-p.words:
			switch {
			case !there:
				p.bury()
				return
			case w.Ended != nil:
				p.exit, p.left = Exited{Code: w.Ended.Code, Signal: w.Ended.Signal}, w.Ended.Left
				// The adapter may have killed the leader before the shim noticed the deadline.
				p.overdue = w.Ended.Overdue || p.overdue && p.exit.Signal == unix.SignalName(unix.SIGKILL)
				return
			case w.Ack != 0:
				p.acknowledged(w.Ack)
			case w.ExecEnded != nil:
				p.besideEnded(*w.ExecEnded)
			}
		case <-look.C:
			now := bootClock()
			terminate, kill, overdue := p.unheard(now)
			p.overdue = p.overdue || overdue
			if terminate {
				p.signal(unix.SIGTERM)
				p.signal(unix.SIGCONT)
			}
			if kill {
				if p.strike(); since == 0 {
					since = now
				}
			}
			if since > 0 && now > since+reportWithin || p.stuck(now) {
				p.bury()
				return
			}
		}
	}
}

// leave takes note of the shim's own end; one that hangs is ended.
func (p *shimProcess) leave() {
	end := time.AfterFunc(reportWithin, func() { _ = p.cmd.Process.Kill() })
	defer end.Stop()
	_ = p.cmd.Wait()
}
