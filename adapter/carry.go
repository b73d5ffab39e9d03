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
	open := func(stream string, tee io.Writer) *output {
		o := &output{
			hide:  newRedactor(r.lease.AgentBearer()),
			file:  r.places.openLog(stream),
			times: r.places.openTimes(stream),
			left:  r.cfg.LogLimit,
			log:   r.log,
		}
		o.ship = append(o.ship, toProxy(stream, r.proxy, r.log))
		if tee != nil {
			o.ship = append(o.ship, toWriter(stream, tee, r.log))
		}
		for _, s := range o.ship {
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
	r.meter.note = filepath.Join(r.places.state, usageFile)
	shipping.Go(func() { r.meter.run(work) })
	shipping.Go(r.execs.wait)
	shipped := make(chan struct{})
	group.Go(func() { shipping.Wait(); close(shipped) })
	return shipped
}

func (r *run) closeOutputs() {
	r.stdout.close()
	r.stderr.close()
	r.events.close()
	r.meter.close()
	r.execs.close()
}

// flush waits until output and events were posted, within the bounds of settling.
func (r *run) flush(ctx context.Context, shipped <-chan struct{}) {
	t := time.NewTimer(r.settleFor(ctx))
	defer t.Stop()
	select {
	case <-shipped:
	case <-t.C:
		r.log.Warn("not all output was taken; it is in the run's directory", "dir", r.places.state)
	}
}
