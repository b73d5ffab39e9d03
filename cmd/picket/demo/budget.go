package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

// budgetAgent makes its calls through `picket tool` alone, as any script would.
const budgetAgent = `#!/bin/sh
for i in 1 2 3 4 5 6 7 8 9 10; do
  (picket tool call http_request --url "$DEMO_API/$i" >"$DEMO_DIR/call-$i" 2>&1; echo $? >"$DEMO_DIR/code-$i") &
done
wait
picket tool report_progress --summary "three of ten calls were made, the rest lacks money" || exit
until picket tool await_top_up | grep -q '"toppedUp": true'; do :; done
for time in first second; do
  picket tool call http_request --url "$DEMO_API/11" --idempotency-key eleven >"$DEMO_DIR/$time" 2>&1 || exit
done
exec picket tool mark_complete --output "done with what there was"
`

const budgetYAML = `budget: {default: {usd: 1.00}}
tools:
  prices: {http_request: {call: 0.30}}
  http_request: {allow: ["%s"]}
`

var budgetChapter = chapter{
	title: "the budget",
	lead:  "Every task has an envelope of money. A call that it does not cover is refused before it is made.",
	prepare: func(st *demoEnv) ([]chapterStep, error) {
		api, err := openPaidAPI()
		if err != nil {
			return nil, err
		}
		st.cleanups = append(st.cleanups, api.close)
		st.env = append(st.env, "DEMO_API=http://"+api.address)
		p := &budgetDemo{demoEnv: st, api: api}
		if p.script, err = st.script("budget.sh", budgetAgent); err != nil {
			return nil, err
		}
		return []chapterStep{p.begin, p.checkRefusals, p.topUp, p.finish, p.checkLedger},
			st.configure(budgetYAML, api.address)
	},
}

// paidAPI is what the calls reach. It counts them: what was refused must not
// have come.
type paidAPI struct {
	address string
	calls   atomic.Int64
	server  *http.Server
}

func openPaidAPI() (*paidAPI, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a := &paidAPI{address: l.Addr().String()}
	a.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "answer %d", a.calls.Add(1))
		}),
	}
	go func() { _ = a.server.Serve(l) }()
	return a, nil
}

func (a *paidAPI) close() { _ = a.server.Close() }

// budgetDemo is the play: one worker, one task, one API.
type budgetDemo struct {
	*demoEnv
	api          *paidAPI
	script       string
	id           string
	topUpCommand string // the command that a refusal printed
}

func (p *budgetDemo) begin(ctx context.Context) error {
	t, err := p.s.Tasks.Create(ctx, picket.TaskSpec{Title: "ten paid calls"})
	if err != nil {
		return err
	}
	p.id = t.TaskID
	p.narrate("Submitted %s with an envelope of %s. A call of http_request costs $0.30.", p.id,
		cli.Dollars(t.BudgetEnvelope.USD))
	worker, err := p.start("adapter", "--env", "DEMO_DIR", "--env", "DEMO_API", "--", p.script)
	if err != nil {
		return err
	}
	p.narrate("Its agent makes ten calls at once.")
	if _, err := p.awaitTask(ctx, p.id, "the agent's report",
		func(t picket.Task) bool { return t.LastReport != nil }); err != nil {
		return fmt.Errorf("%w\n%s", err, worker.stderr())
	}
	return nil
}

var topUpLine = lazyregexp.New(`picket budget top-up task_[0-9A-Z]+ --usd [0-9.]+`)

func (p *budgetDemo) checkRefusals(ctx context.Context) error {
	made, refused := 0, 0
	for i := 1; i <= 10; i++ {
		code, err := os.ReadFile(p.path(fmt.Sprintf("code-%d", i)))
		if err != nil {
			return err
		}
		answer, err := os.ReadFile(p.path(fmt.Sprintf("call-%d", i)))
		if err != nil {
			return err
		}
		switch strings.TrimSpace(string(code)) {
		case fmt.Sprint(exit.OK):
			made++
		case fmt.Sprint(exit.Budget):
			refused++
			p.topUpCommand = topUpLine().FindString(string(answer))
		default:
			return fmt.Errorf("call %d ended with exit code %s: %s", i, strings.TrimSpace(string(code)), answer)
		}
	}
	if reached := p.api.calls.Load(); made != 3 || refused != 7 || reached != 3 {
		return fmt.Errorf("expected 3 calls and 7 refusals, got %d and %d, and %d reached the API", made, refused,
			reached)
	}
	p.narrate("Three were made. Seven were refused with exit code %d, budget_exceeded; the API has counted three.",
		exit.Budget)
	return p.checkEnvelope(ctx, "spent $0.90, held nothing, left $0.10", budget.Envelope{USD: 900_000_000},
		budget.Envelope{USD: 100_000_000})
}

// checkEnvelope compares the envelope's dollars with what they must be.
func (p *budgetDemo) checkEnvelope(ctx context.Context, words string, spent, left budget.Envelope) error {
	e, err := p.s.Budgets.Get(ctx, p.id)
	if err != nil {
		return err
	}
	if e.Spent.USD != spent.USD || e.Available.USD != left.USD || e.Held.USD != 0 || !e.Balanced() {
		return fmt.Errorf("expected an envelope with %s, got %+v", words, e.Account)
	}
	p.narrate("The envelope: %s.", words)
	return nil
}

func (p *budgetDemo) topUp(ctx context.Context) error {
	if p.topUpCommand == "" {
		return errors.New("not observed: the command in a refusal that tops up")
	}
	p.narrate("The agent waits in await_top_up. A refusal printed what helps; it is run as it stands:")
	_, err := p.runShell(ctx, exit.OK, p.topUpCommand)
	return err
}

func (p *budgetDemo) finish(ctx context.Context) error {
	if _, err := p.awaitTask(ctx, p.id, "the result in review",
		func(t picket.Task) bool { return t.State == picket.TaskReview }); err != nil {
		return err
	}
	if reached := p.api.calls.Load(); reached != 4 {
		return fmt.Errorf("expected a fourth call, the API has counted %d", reached)
	}
	again, err := os.ReadFile(filepath.Join(p.dir, "second"))
	if err != nil {
		return err
	}
	if !strings.Contains(string(again), `"replayed": true`) || !strings.Contains(string(again), "answer 4") {
		return fmt.Errorf("the repeated call did not answer what the first did: %s", again)
	}
	p.narrate("The agent went on: the same call passed. It made it twice under one key: the API has counted four, the second answer is the kept one.")
	return p.checkEnvelope(ctx, "spent $1.20, held nothing, left $0.00", budget.Envelope{USD: 1_200_000_000},
		budget.Envelope{})
}

func (p *budgetDemo) checkLedger(ctx context.Context) error {
	page, err := p.s.Budgets.Ledger(ctx, picket.LedgerQuery{TaskID: p.id})
	if err != nil {
		return err
	}
	var calls, topUps int
	var charged budget.Money
	for _, r := range page.Rows {
		switch r.Kind {
		case picket.LedgerCall:
			calls++
			charged += r.Charged.USD
		case picket.LedgerTopUp:
			topUps++
		}
	}
	if calls != 4 || topUps != 1 || charged != 1_200_000_000 {
		return fmt.Errorf("expected 4 calls of $1.20 together and a top-up in the ledger, got %d, %d and %s", calls,
			topUps, cli.Dollars(charged))
	}
	p.narrate("The ledger has a row for each of the four calls, %s together, and one for the top-up.",
		cli.Dollars(charged))
	return nil
}
