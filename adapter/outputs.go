package adapter

import (
	"context"
	"io"
	"path/filepath"
	"sync"
	"time"
)

// openOutputs starts what carries output and events on; the channel closes when
// all of it has arrived.
func (r *run) openOutputs(work context.Context, group *sync.WaitGroup) <-chan struct{} {
	var shipping sync.WaitGroup
	open := func(stream string, tee io.Writer) *outputStream {
		o := &outputStream{
			redactor: newRedactor(r.lease.AgentCredential()),
			file:     r.paths.openLog(stream),
			times:    r.paths.openTimes(stream),
			fileRoom: r.cfg.LogLimit,
			log:      r.log,
		}
		o.shippers = append(o.shippers, newProxyShipper(stream, r.proxy, r.log))
		if tee != nil {
			o.shippers = append(o.shippers, newWriterShipper(stream, tee, r.log))
		}
		for _, s := range o.shippers {
			shipping.Go(func() { s.run(work) })
		}
		return o
	}
	stdout, stderr := r.cfg.Stdout, r.cfg.Stderr
	if of := r.cfg.OutputOf; of != "" && of != r.lease.TaskID {
		stdout, stderr = nil, nil
	}
	r.stdout, r.stderr = open("stdout", stdout), open("stderr", stderr)
	shipping.Go(func() { r.events.run(work) })
	r.usage.file = filepath.Join(r.paths.stateDir, usageFile)
	shipping.Go(func() { r.usage.run(work) })
	shipping.Go(r.execs.wait)
	shipped := make(chan struct{})
	group.Go(func() { shipping.Wait(); close(shipped) })
	return shipped
}

func (r *run) closeOutputs() {
	r.stdout.close()
	r.stderr.close()
	r.events.close()
	r.usage.close()
	r.execs.close()
}

// waitForShippers waits until output and events were posted, within the bounds of settling.
func (r *run) waitForShippers(ctx context.Context, shipped <-chan struct{}) {
	t := time.NewTimer(r.flushTimeout(ctx))
	defer t.Stop()
	select {
	case <-shipped:
	case <-t.C:
		r.log.Warn("not all output was taken; it is in the run's directory", "dir", r.paths.stateDir)
	}
}
