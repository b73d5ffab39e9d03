package orchestrator

import (
	"context"
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
)

// Ledger pages through the rows of an envelope, or of all, oldest first unless
// asked otherwise. Rows are deleted with their task.
func (e *Engine) Ledger(ctx context.Context, q picket.LedgerQuery) (picket.LedgerPage, error) {
	if q.Limit == 0 {
		q.Limit = 100
	}
	if q.Limit < 1 || q.Limit > maxListRows {
		return picket.LedgerPage{},
			picket.Invalid("limit", "Send a number from 1 to 1000.", "limit is %d, allowed are 1 to %d", q.Limit,
				maxListRows)
	}
	if q.TaskID != "" {
		if err := picket.CheckEnvelopeID("task", q.TaskID); err != nil {
			return picket.LedgerPage{}, err
		}
	}
	got, err := e.run(ctx, "ledger", q.TaskID, max(q.After, 0), q.Limit, boolArg(q.NewestFirst))
	if err != nil {
		return picket.LedgerPage{}, err
	}
	r := &reply{script: "ledger"}
	page := picket.LedgerPage{Rows: []picket.LedgerRow{}}
	for _, v := range r.list(got) {
		page.Rows = append(page.Rows, r.ledgerRow(r.list(v)))
	}
	if n := len(page.Rows); n == q.Limit {
		page.Next = strconv.FormatInt(page.Rows[n-1].Seq, 10)
	}
	return page, r.err
}

func (r *reply) ledgerRow(l []any) picket.LedgerRow {
	seq, _, _ := strings.Cut(r.text(r.at(l, 0)), "-")
	h := r.hash(r.at(l, 1))
	return picket.LedgerRow{
		Seq:          parseInt(seq),
		At:           picket.Instant(parseInt(h["at"])),
		TaskID:       h["task"],
		RunID:        h["run"],
		CallID:       h["call"],
		Kind:         picket.LedgerKind(h["kind"]),
		Tool:         h["tool"],
		Outcome:      picket.CallOutcome(h["outcome"]),
		Reserved:     amountColumn(h, "held"),
		Charged:      amountColumn(h, "cost"),
		Unverified:   amountColumn(h, "unverified"),
		PriceVersion: h["version"],
		Late:         h["late"] == "1",
		Detail:       h["detail"],
		Actor:        h["actor"],
	}
}
