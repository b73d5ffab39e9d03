package crowd

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
	"github.com/picket-dev/picket/orchestrator/proof/model"
)

// Random operations on trees of tasks that share a house, by several clients at
// once: whatever they do and whatever is refused, every envelope adds up to the
// nano-dollar, and the ledger says the same.
func TestBooksAfterTenThousandOperations(t *testing.T) {
	seed := rig.Seed(t)
	kit.OnBothStores(t, func(t *testing.T, f *kit.Fixture) {
		f.Store.SetBudgets(kit.Worth(1_000_000, "1000"), nil)
		clients, ops := 8, rig.Rounds(10_000, 200_000)
		if f.Virtual { // the same way, so that it can be looked at without a race
			clients, ops = 1, 600
		}
		m := &moneyClients{Fixture: f, t: t, tally: map[picket.Code]int{}}
		var running sync.WaitGroup
		for i := range clients {
			running.Go(func() { m.runOperations(rand.New(rand.NewPCG(seed, uint64(i))), ops/clients) })
		}
		running.Wait()
		m.check("under way")
		f.JumpStoreTime(t, time.Hour)
		for n := 1; n > 0; {
			var err error
			n, err = f.SettleOverdueCalls(f.Ctx, 100)
			kit.OK(t, err)
		}
		held := m.check("when all calls have ended")
		if !held.IsZero() {
			t.Errorf("%+v is still held", held)
		}
		f.CancelAll(t)
		m.check("when all tasks have ended")
		house := m.account("house:" + m.day)
		var spent budget.Envelope
		for _, id := range m.ids() {
			spent = spent.Add(m.account(id).Spent)
		}
		if house.Granted != house.Available.Add(spent) || house.Carved != spent {
			t.Errorf("of %+v the house has %+v and has carved %+v; its tasks have spent %+v", house.Granted,
				house.Available, house.Carved, spent)
		}
		kit.CheckInvariants(t, f.Engine)
		kit.CheckActivity(f.Ctx, t, f.Engine)
		t.Logf("%d operations of %d clients on %d tasks: %d done, refused %v", ops, clients, len(m.tasks),
			m.done.Load(), m.tally)
	})
}

// moneyClients is what the clients share: who holds what, and the calls under way.
type moneyClients struct {
	*kit.Fixture
	t     *testing.T
	done  atomic.Int64
	day   string
	mu    sync.Mutex
	tasks []string
	held  []picket.LeaseCredential
	open  []picket.Reservation
	tally map[picket.Code]int
}

func (m *moneyClients) ids() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.tasks)
}

// randomOf draws an element of a list that others change; the zero value when it is
// empty.
func randomOf[V any](m *moneyClients, rnd *rand.Rand, list *[]V) (v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(*list) > 0 {
		v = (*list)[rnd.IntN(len(*list))]
	}
	return v
}

func appendTo[V any](m *moneyClients, list *[]V, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*list = append(*list, v)
}

// randomAmount draws an amount with an odd number of nano-dollars.
func randomAmount(rnd *rand.Rand, most int64) budget.Envelope {
	return budget.Envelope{Tokens: rnd.Int64N(most / 1000), USD: budget.Money(rnd.Int64N(most * 1000))}
}

func (m *moneyClients) runOperations(rnd *rand.Rand, ops int) {
	for range ops {
		err := m.randomOperation(rnd)
		if err == nil {
			m.done.Add(1)
			continue
		}
		code := picket.CodeOf(err)
		if code.Status() >= 500 {
			m.t.Errorf("an operation ended with %v", err)
			return
		}
		m.mu.Lock()
		m.tally[code]++
		m.mu.Unlock()
	}
}

func (m *moneyClients) randomOperation(rnd *rand.Rand) error {
	h, task := randomOf(m, rnd, &m.held), randomOf(m, rnd, &m.tasks)
	switch n := rnd.IntN(100); {
	case n < 5 || len(m.ids()) < 8:
		e := randomAmount(rnd, 1_000_000)
		got, err := m.Submit(m.Ctx, kit.Operator, picket.TaskSpec{Title: "a tree", BudgetEnvelope: &e})
		if err == nil {
			appendTo(m, &m.tasks, got.TaskID)
		}
		return err
	case n < 18:
		leases, err := m.Acquire(m.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1", Max: kit.Ptr(2)})
		for _, l := range leases {
			held, err := m.Sealer.OpenLeaseToken(l.LeaseToken.Reveal())
			if err != nil {
				return err
			}
			appendTo(m, &m.held, held)
		}
		return err
	case n < 28:
		e := randomAmount(rnd, 300_000)
		got, err := m.Delegate(m.Ctx, h, "", picket.Subtask{Title: "a part", BudgetEnvelope: &e})
		if err == nil {
			appendTo(m, &m.tasks, got.TaskID)
		}
		return err
	case n < 58:
		got, err := m.Reserve(m.Ctx, h,
			picket.CallRequest{
				CallID:       fmt.Sprint("r", rnd.Uint64()),
				Nonce:        fmt.Sprint(rnd.Uint64()),
				Tool:         "http_request",
				Reserve:      randomAmount(rnd, 100_000),
				PriceVersion: "v1",
				Effects:      picket.EffectsNone,
				TimeoutMs:    60_000,
			})
		if err == nil {
			appendTo(m, &m.open, got)
		}
		return err
	case n < 84:
		r := randomOf(m, rnd, &m.open)
		s := picket.Settlement{
			CallID: r.CallID,
			TaskID: r.TaskID,
			Nonce:  r.Nonce,
			Cost:   randomAmount(rnd, 120_000),
			Outcome: []picket.CallOutcome{picket.CallDone, picket.CallDone, picket.CallFailed, picket.CallUndispatched,
				picket.CallUncertain}[rnd.IntN(5)],
		}
		_, err := m.Settle(m.Ctx, s)
		return err
	case n < 88:
		e := randomAmount(rnd, 50_000)
		_, err := m.ReportUsage(m.Ctx, h,
			picket.UsageReport{Source: "claude", Session: "s", Tokens: e.Tokens, USD: e.USD})
		return err
	case n < 92:
		e := randomAmount(rnd, 200_000)
		_, err := m.TopUp(m.Ctx, kit.Operator, task, picket.TopUp{Tokens: e.Tokens + 1, USD: e.USD})
		return err
	case n < 95:
		_, err := m.Complete(m.Ctx, h,
			picket.Completion{
				Output:   picket.RawJSON(`1`),
				Children: []picket.Children{"", picket.ChildrenDetach, picket.ChildrenCancel}[rnd.IntN(3)],
			})
		return err
	case n < 96:
		_, err := m.Fail(m.Ctx, h, "no", true)
		return err
	case n < 97:
		_, err := m.Cancel(m.Ctx, kit.Operator, task, "r")
		return err
	case n < 98:
		got, err := m.Retry(m.Ctx, kit.Operator, task, "r")
		if err == nil && got.TaskID != task {
			appendTo(m, &m.tasks, got.TaskID)
		}
		return err
	case n < 99:
		_, fix, err := m.Reject(m.Ctx, kit.Operator, task, picket.Decision{Note: "n"},
			&picket.TaskSpec{Title: "fix", BudgetEnvelope: kit.Worth(1, "0.000000001")})
		if fix != "" {
			appendTo(m, &m.tasks, fix)
		}
		return err
	}
	_, err := m.Approve(m.Ctx, kit.Operator, task, picket.Decision{Note: "n"})
	return err
}

// account reads the books of an envelope past the engine.
func (m *moneyClients) account(id string) budget.Account {
	m.t.Helper()
	row, err := m.Raw.HGetAll(m.Ctx, "pk:{default}:env:"+id).Result()
	kit.OK(m.t, err)
	return model.AccountOf(row)
}

// total is what was spent from an envelope and from all below it, as counted.
func (m *moneyClients) total(id string) budget.Envelope {
	m.t.Helper()
	row, err := m.Raw.HGetAll(m.Ctx, "pk:{default}:env:"+id).Result()
	kit.OK(m.t, err)
	return model.ColumnOf(row, "total")
}

// check holds every envelope against its own columns (I3), its calls (I6), its
// subtasks (I8) and the ledger. It returns what is held in all.
func (m *moneyClients) check(when string) (held budget.Envelope) {
	m.t.Helper()
	days, err := m.Raw.ZRange(m.Ctx, "pk:{default}:houses", 0, -1).Result()
	kit.OK(m.t, err)
	if len(days) != 1 {
		m.t.Skip("a day has ended in between")
	}
	m.day = strings.TrimPrefix(days[0], "house:")
	charged := m.ledger()
	m.checkSpending(when, m.total(days[0]))
	for _, id := range append(m.ids(), days[0]) {
		a := m.account(id)
		var carved, calls budget.Envelope
		total := a.Spent
		for _, child := range m.Raw.ZRange(m.Ctx, "pk:{default}:children:"+id, 0, -1).Val() {
			carved, total = carved.Add(m.account(child).Granted), total.Add(m.total(child))
		}
		if got := m.total(id); got != total {
			m.t.Fatalf("%s, %s and all below it have spent %+v; counted are %+v", when, id, total, got)
		}
		for _, call := range m.Raw.ZRange(m.Ctx, "pk:{default}:calls:"+id, 0, -1).Val() {
			calls = calls.Add(model.ColumnOf(m.Raw.HGetAll(m.Ctx, "pk:{default}:hold:"+id+":"+call).Val(), "need"))
		}
		if !a.Balanced() || a.Carved != carved || a.Held != calls || a.Spent != charged[id] {
			m.t.Fatalf("%s, %s: %+v; its subtasks have %+v, its calls %+v, the ledger %+v", when, id, a, carved, calls,
				charged[id])
		}
		held = held.Add(a.Held)
	}
	return held
}

// checkSpending holds the reports of what was spent against the total of the day and of the namespace.
func (m *moneyClients) checkSpending(when string, total budget.Envelope) {
	m.t.Helper()
	s, err := m.Stats(m.Ctx)
	kit.OK(m.t, err)
	for _, by := range []string{"day", "role", "model", "label:team"} {
		report, err := m.Spending(m.Ctx, picket.SpendingQuery{By: []string{by}, Since: "400d"})
		kit.OK(m.t, err)
		var rows budget.Envelope
		for _, row := range report.Rows {
			rows = rows.Add(row.Spent)
		}
		if rows != total || report.Total.Spent != total || report.Total.Returned != s.Money.Returned ||
			!report.Complete {
			m.t.Fatalf("%s, by %s %+v was spent, in all %+v; the day has spent %+v, and %+v was returned", when, by, rows,
				report.Total, total, s.Money.Returned)
		}
	}
}

// ledger adds up what was charged to each task.
func (m *moneyClients) ledger() map[string]budget.Envelope {
	m.t.Helper()
	charged := map[string]budget.Envelope{}
	for q := (picket.LedgerQuery{Limit: 1000}); ; {
		page, err := m.Ledger(m.Ctx, q)
		kit.OK(m.t, err)
		for _, row := range page.Rows {
			if row.Kind != picket.LedgerTopUp {
				charged[row.TaskID] = charged[row.TaskID].Add(row.Charged)
			}
			q.After = row.Seq
		}
		if page.Next == "" {
			return charged
		}
	}
}
