package toolproxy_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// A crowd of calls of one lease races with its end and the next grant: none of
// them may land behind the grant, however the requests interleave.
func TestNoWriteLandsBehindTheNextGrant(t *testing.T) {
	h, leave := newEngineEnv(t, rig.Real(t))
	defer leave()
	const crowd, rounds = 8, 20
	h.submit()
	var wg sync.WaitGroup
	for range rounds {
		l := h.lease()
		landed := make(chan struct{}, crowd)
		for range crowd {
			wg.Go(func() {
				for n := 0; h.post(l, "/v1/tools/report_progress",
					fmt.Sprintf(`{"summary":"still here, %d"}`, n)).status == 200; n++ {
					select {
					case landed <- struct{}{}:
					default:
					}
				}
			})
		}
		<-landed // the crowd is at work, and goes on while the next lease is granted
		_, err := h.Expire(h.ctx, operator, l.TaskID, "test")
		h.ok(err)
	}
	wg.Wait()
	h.checkLog(t)
}

// checkLog reads the whole log: the fence of each task only rises, and progress
// carries the fence of a lease that is held.
func (h *engineEnv) checkLog(t *testing.T) {
	t.Helper()
	granted, held, progress := map[string]int64{}, map[string]bool{}, 0
	for after := int64(0); ; {
		page, err := h.Events(h.ctx, picket.EventQuery{After: after, Limit: 1000})
		h.ok(err)
		if len(page.Events) == 0 {
			break
		}
		for _, e := range page.Events {
			after = e.Seq
			switch e.Type {
			case picket.EventTaskLeased:
				if e.FencingToken != granted[e.TaskID]+1 {
					t.Errorf("event %d: fence %d after %d", e.Seq, e.FencingToken, granted[e.TaskID])
				}
				granted[e.TaskID], held[e.TaskID] = e.FencingToken, true
			case picket.EventLeaseExpired:
				held[e.TaskID] = false
			case picket.EventTaskProgress:
				progress++
				if e.FencingToken != granted[e.TaskID] || !held[e.TaskID] {
					t.Errorf("event %d: progress under fence %d; granted was %d, held %v", e.Seq, e.FencingToken,
						granted[e.TaskID], held[e.TaskID])
				}
			}
		}
	}
	if progress == 0 {
		t.Error("nobody reported anything: the test proves nothing")
	}
}
