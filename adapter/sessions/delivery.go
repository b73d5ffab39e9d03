package sessions

import (
	"context"
	"errors"
	"time"

	"github.com/picket-dev/picket"
)

// pieceInterval is the least time between two pieces of an answer.
const pieceInterval = 250 * time.Millisecond

// deliver sends the results of a command, in order, until the server has all of them. If that is under
// way, or was done before, the last result is sent again.
func (k *Keeper) deliver(c *command) {
	if c.startDelivery() {
		k.work.Go(func() { k.deliverAll(c) })
	}
}

// resumeDelivery delivers what an earlier keeper could not.
func (k *Keeper) resumeDelivery() {
	for _, c := range k.memory.undelivered() {
		k.deliver(c)
	}
}

func (k *Keeper) deliverAll(c *command) {
	retry := retryPace()
	for {
		r, ok := c.next()
		if !ok {
			if c.stopDelivery(false) {
				return
			}
			select {
			case <-c.wake:
				continue
			case <-k.sending.Done():
				c.stopDelivery(true)
				return
			}
		}
		r.Incarnation = k.cfg.Incarnation
		var taken picket.ResultTaken
		err := k.call(k.sending, requestTimeout, func(try context.Context) (err error) {
			taken, err = k.cfg.Server.Result(try, c.record.CommandID, r)
			return err
		})
		switch {
		case err == nil:
			c.acknowledge(r, taken)
			retry.reset()
			if r.Output != "" && !r.State.Ended() && !sleep(k.sending, pieceInterval) {
				c.stopDelivery(true)
				return
			}
		case refusedForGood(err):
			k.cfg.Log.Warn("the server has refused the result of a command", "command", c.record.CommandID, "err", err)
			c.refuse()
			k.awaitEnd(c)
			return
		case errors.Is(err, picket.CodeAgentGone) || !retry.pause(k.sending, err):
			c.stopDelivery(true)
			return
		}
	}
}

// awaitEnd gives the delivery up when the command has ended.
func (k *Keeper) awaitEnd(c *command) {
	for !c.hasEnded() {
		select {
		case <-c.wake:
		case <-k.sending.Done():
			c.stopDelivery(true)
			return
		}
	}
	c.giveUpDelivery()
}

// hasEnded reports whether the result is known.
func (c *command) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.State.Ended()
}
