package adapter

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// runOutput is what a run tells besides its end: its output streams, its events, what
// its agent has used, and the results of programs run beside the agent.
type runOutput struct {
	*runScope
	dir     string // the run's own directory
	stdout  *outputStream
	stderr  *outputStream
	events  *eventQueue
	usage   *usageReporter
	execs   *execRunner
	shipped chan struct{} // closed once all of it has arrived
}

// open starts what carries output and events on.
func (o *runOutput) open(work context.Context, group *sync.WaitGroup, dir string) {
	o.dir, o.shipped = dir, make(chan struct{})
	var shipping sync.WaitGroup
	stdout, stderr := o.cfg.Stdout, o.cfg.Stderr
	if of := o.cfg.OutputOf; of != "" && of != o.lease.TaskID {
		stdout, stderr = nil, nil
	}
	o.stdout, o.stderr = o.openStream("stdout", stdout), o.openStream("stderr", stderr)
	for _, stream := range []*outputStream{o.stdout, o.stderr} {
		for _, s := range stream.shippers {
			shipping.Go(func() { s.run(work) })
		}
	}
	o.usage.file = filepath.Join(dir, usageFile)
	shipping.Go(func() { o.events.run(work) })
	shipping.Go(func() { o.usage.run(work) })
	shipping.Go(o.execs.wait)
	group.Go(func() { shipping.Wait(); close(o.shipped) })
}

func (o *runOutput) openStream(stream string, tee io.Writer) *outputStream {
	s := &outputStream{
		redactor: newRedactor(o.lease.AgentCredential()),
		file:     o.create(stream + ".log"),
		times:    o.create(stream + ".times"),
		fileRoom: o.cfg.LogLimit,
		log:      o.log,
		shippers: []*logShipper{newProxyShipper(stream, o.proxy, o.log)},
	}
	if tee != nil {
		s.shippers = append(s.shippers, newWriterShipper(stream, tee, o.cfg.copying, o.log))
	}
	return s
}

// create makes a file in the run's directory; nil when it cannot.
func (o *runOutput) create(name string) *os.File {
	f, err := os.OpenFile(filepath.Join(o.dir, name), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil
	}
	return f
}

// close ends the streams and lets what carries them on end when all has arrived.
func (o *runOutput) close() {
	o.stdout.close()
	o.stderr.close()
	o.events.close()
	o.usage.close()
	o.execs.close()
}

// wait waits until all output and events were posted, at most for Config.ReportRetry, and
// not long once ctx has ended.
func (o *runOutput) wait(ctx context.Context) {
	most := o.cfg.ReportRetry
	if ctx.Err() != nil {
		most = min(most, reportTimeout)
	}
	select {
	case <-o.shipped:
	case <-time.After(most):
		o.log.Warn("not all output was taken; it is in the run's directory", "dir", o.dir)
	}
}

// tail returns the last lines that the process wrote, errors first.
func (o *runOutput) tail() string {
	if s := o.stderr.text(maxDetail); s != "" {
		return s
	}
	return o.stdout.text(maxDetail)
}

// maxDetail bounds the text that goes with an exit, in bytes.
const maxDetail = 8 << 10

// maxResultOutput leaves room for the result under picket.MaxPayload: characters may
// grow sixfold when they are written as JSON.
const maxResultOutput = picket.MaxPayload * 3 / 4

// result returns the end of stdout as a JSON string that the server takes.
func (o *runOutput) result() (picket.RawJSON, error) {
	for n := maxTail; ; n /= 2 {
		b, err := json.Marshal(o.stdout.text(n))
		if err != nil || len(b) <= maxResultOutput {
			return b, err
		}
	}
}
