package adapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/picket-dev/picket/adapter/workspace"
)

// branchPusher pushes the branch of a run to Config.WorkspaceRemote: while the agent works, at most
// once a minute and only when the branch has moved, and once more after the last commit. A
// push that fails is told in the log of the run and tried again at the next moment. It never
// ends a run, and no part of a run waits for it except the last push.
type branchPusher struct {
	*runScope
	runLog io.Writer // the log of the run; untold errors are written there
	base   string    // the commit at which the branch began
	pushed string    // the last commit that was pushed
	failed string    // the last error that was told

	stop context.CancelFunc
	done chan struct{} // closed once nothing is pushed any more; nil: nothing was
}

const (
	// pushInterval is how often a branch that moves is pushed at most.
	pushInterval = time.Minute
	// tipInterval is how often the adapter looks whether the branch has moved.
	tipInterval = 5 * time.Second
)

// lastPushTimeout bounds the push after the last commit. The run is not reported ended before.
const lastPushTimeout = 30 * time.Second

// start begins to push. held ends with the lease.
func (p *branchPusher) start(held context.Context, k *workspace.Locked, runLog io.Writer) {
	if p.cfg.WorkspaceRemote == "" || k == nil || k.Source != workspace.Worktree {
		return
	}
	p.base, p.runLog, p.done = k.Base, runLog, make(chan struct{})
	held, p.stop = context.WithCancel(held)
	go func() {
		defer close(p.done)
		if err := p.cfg.workspaceStore().CopyBase(held, p.base); err != nil && held.Err() == nil {
			p.log.Warn("the history of the branch is not copied yet", "err", err)
		}
		interval := cmp.Or(p.cfg.pushEvery, pushInterval)
		tick := time.NewTicker(min(interval, tipInterval))
		defer tick.Stop()
		var last time.Duration // when the last push began, on the clock
		for {
			if now := p.cfg.clock(); last == 0 || now-last >= interval {
				if tried, _ := p.push(held, workspace.PushTimeout); tried {
					last = now
				}
			}
			select {
			case <-tick.C:
			case <-held.Done():
				return
			}
		}
	}()
}

// end ends the pushes beside the agent, and waits until nothing of them runs.
func (p *branchPusher) end() {
	if p.done != nil {
		p.stop()
		<-p.done
	}
}

// push pushes the branch if it has moved, and reports whether it had.
func (p *branchPusher) push(ctx context.Context, within time.Duration) (tried bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	store := p.cfg.workspaceStore()
	tip := store.TaskTip(ctx, p.lease.TaskID)
	if tip == "" || tip == p.base || tip == p.pushed {
		return false, nil
	}
	tip, err = store.PushBranch(ctx, workspace.Remote(p.cfg.WorkspaceRemote), p.lease.TaskID, p.lease.FencingToken)
	if err == nil {
		p.pushed, p.failed = tip, ""
		p.log.Info("the branch was pushed", "commit", tip)
		return true, nil
	}
	if errors.Is(context.Cause(ctx), context.Canceled) { // the last push is still to come, or the lease is lost
		return true, err
	}
	p.log.Warn("the branch is not pushed", "err", err)
	if said := err.Error(); said != p.failed {
		p.failed = said
		fmt.Fprintf(p.runLog, "\n[picket: the branch is not on workspace.remote yet: %s]\n", said)
	}
	return true, err
}

// pushLast pushes what the last commit has added. It gives up soon after ctx has ended. The answer is
// what a reviewer should know.
func (p *branchPusher) pushLast(ctx context.Context) (note string) {
	if p.done == nil {
		return ""
	}
	pushing, cancel := outlast(ctx)
	defer cancel()
	if _, err := p.push(pushing, lastPushTimeout); err != nil {
		return "[picket: the branch is only on this machine: " + err.Error() + "]\n"
	}
	return ""
}
