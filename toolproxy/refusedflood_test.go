package toolproxy_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// A superseded run repeats refused writes. In a minute it writes at most 21 events,
// the last of which counts the others, and none of them is in the audit log.
func TestAFloodOfRefusedWritesIsCounted(t *testing.T) {
	const flood = 200
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		old := h.submitAndLease()
		h.expire()
		h.lease()
		for range flood {
			if a := h.call(t, goodRequests["report_progress"].with(old.LeaseToken.Reveal(),
				"")); a.status != http.StatusPreconditionFailed {
				t.Fatalf("the superseded run got %d %s", a.status, a.raw)
			}
		}
		h.advance(time.Minute)
		h.ok(h.Tick(h.ctx)) // tells what was only counted
		page, err := h.Events(h.ctx, picket.EventQuery{Types: []string{picket.EventWriteRefused}, Limit: 1000})
		h.ok(err)
		told := 0
		for _, ev := range page.Events {
			n, err := strconv.Atoi(fmt.Sprint(decode(t, string(ev.Data))["count"]))
			h.ok(err)
			told += n
		}
		// A minute of store time can turn while the flood lasts, on a real store.
		if n := len(page.Events); told != flood || n < 21 || n > 42 || h.virtual && n != 21 {
			t.Errorf("%d events count %d refused writes, want 21 that count %d", n, told, flood)
		}
		page, err = h.Events(h.ctx, picket.EventQuery{Audit: true, Types: []string{picket.EventWriteRefused}})
		h.ok(err)
		if len(page.Events) != 0 {
			t.Errorf("the audit log has %+v", page.Events)
		}
	})
}
