package console

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

func overviewPages() []route {
	return []route{
		{name: "overview", method: get, path: home, scopes: people, as: []string{"GET /api/v1/stats", "GET /api/v1/handoffs", "GET /api/v1/reviews",
			"GET /api/v1/envelopes/:id", "GET /api/v1/events"}, handle: overview, nav: "Overview"},
	}
}

// Bounds of the overview.
const (
	maxWaiting = 6         // of each queue
	hour       = time.Hour // what throughput and refusals are shown of
	bars       = 30        // of two minutes each
	maxOutcome = 1000      // events read for it
)

// overviewView is what needs a person now, and how things go.
type overviewView struct {
	Figures  []figure
	Handoffs []handoffRow
	Reviews  []reviewRow
	Late     bool // a hand-off is past its deadline
	House    picket.EnvelopeState
	HouseBar bar
	// Spent is what was spent today; SpentMore: there is more than was looked at.
	Spent        budget.Envelope
	SpentMore    bool
	NoTokenLimit bool
	Pulse        pulse
	Agents       []figure
}

// figure is a number to see at a glance.
type figure struct {
	Name, Path string
	Count      int64
}

func overview(v *visit) error {
	if err := v.look(); err != nil {
		return err
	}
	var w overviewView
	for _, part := range []func(*visit) error{w.waiting, w.money, w.beat} {
		if err := part(v); err != nil {
			return err
		}
	}
	w.figures(v)
	return v.show(http.StatusOK, page{name: "overview", title: "Overview",
		topics: []string{"task.", "lease.", "handoff.", "agent.", "budget.", "namespace.", "write.", "store."}, body: w})
}

func (w *overviewView) figures(v *visit) {
	for _, s := range picket.TaskStates {
		f := figure{Name: string(s), Count: v.stats.Tasks[s], Path: address(tasksPath, "state", string(s))}
		switch s {
		case picket.TaskLeased:
			f.Name = "running"
		case picket.TaskHandoff:
			f.Name, f.Path = "hand-offs", handoffsPath
		case picket.TaskReview:
			f.Name, f.Path = "in review", reviewsPath
		}
		w.Figures = append(w.Figures, f)
	}
	for _, s := range picket.AgentStatuses {
		if n := v.stats.Agents[s]; n > 0 {
			w.Agents = append(w.Agents, figure{Name: string(s), Count: n})
		}
	}
}

func (w *overviewView) waiting(v *visit) error {
	open, err := v.desk.Handoffs(v.ctx(), picket.HandoffQuery{State: picket.HandoffOpen, Limit: maxWaiting})
	if err != nil {
		return err
	}
	w.Handoffs = v.handoffRows(open.Handoffs)
	w.Late = slices.ContainsFunc(w.Handoffs, func(h handoffRow) bool { return h.Late })
	done, err := v.desk.Reviews(v.ctx(), picket.ReviewQuery{Limit: maxWaiting})
	w.Reviews = reviewRows(done.Reviews)
	return err
}

// money is the day's envelope, where there is a limit a day, with all that was
// spent under it; else what was ever spent.
func (w *overviewView) money(v *visit) error {
	house, err := v.desk.Envelope(v.ctx(), "house")
	if errors.Is(err, picket.CodeNotFound) {
		w.Spent = v.stats.Money.Spent
		return nil
	}
	w.House = house
	var seen int
	w.Spent, seen = spentUnder(house)
	w.SpentMore = seen >= picket.MaxEnvelopes
	account := house.Account
	account.Carved = account.Carved.Minus(w.Spent.Minus(account.Spent))
	account.Spent = w.Spent
	w.HouseBar = barOf(account)
	w.NoTokenLimit = house.Granted.Tokens >= budget.MaxTokens
	return err
}

// spentUnder is what was spent from an envelope and from all that was carved
// from it, and how many envelopes these are.
func spentUnder(e picket.EnvelopeState) (spent budget.Envelope, envelopes int) {
	spent, envelopes = e.Spent, 1
	for _, child := range e.Children {
		s, n := spentUnder(child)
		spent, envelopes = spent.Plus(s), envelopes+n
	}
	return spent, envelopes
}

// pulse is what came of the last hour, in bars of two minutes.
type pulse struct {
	Bars                 []pulseBar
	Ended, Failed, Asked int64
	Refused              []figure // writes, by why
	RefusedSum           int64
	Partly               bool // more happened than was looked at
	Words                string
}

// pulseBar is one bar of the chart, in the units of its picture.
type pulseBar struct{ X, Good, Bad, GoodY, BadY int }

const (
	chartHeight = 60
	barWidth    = 10
)

// outcomes are the events that say how tasks fare.
var outcomes = []string{picket.EventTaskReview, picket.EventTaskCompleted, picket.EventTaskFinished, picket.EventTaskHandoff,
	picket.EventLeaseFailed, picket.EventLeaseExpired, picket.EventLeaseReleased, picket.EventWriteRefused}

// beat reads the last hour backwards from now.
func (w *overviewView) beat(v *visit) error {
	found, err := v.desk.Events(v.ctx(), picket.EventQuery{Types: outcomes, Back: true, Limit: maxOutcome})
	if err != nil {
		return err
	}
	w.Pulse = pulseOf(found.Events, v.now())
	if n := len(found.Events); found.Next != "" && (n == 0 || found.Events[n-1].At > v.now()-picket.Instant(hour.Milliseconds())) {
		w.Pulse.Partly = true
	}
	return nil
}

func pulseOf(events []picket.Event, now picket.Instant) pulse {
	var p pulse
	var good, bad [bars]int
	refused := map[string]int64{}
	width := picket.Instant(hour.Milliseconds() / bars)
	for _, ev := range events {
		slot := bars - 1 - int((now-ev.At)/width)
		if slot < 0 || slot >= bars {
			continue
		}
		switch ev.Type {
		case picket.EventTaskReview, picket.EventTaskCompleted, picket.EventTaskFinished:
			good[slot]++
			p.Ended++
		case picket.EventTaskHandoff:
			p.Asked++
		case picket.EventWriteRefused:
			code, n := refusedOf(ev)
			refused[code] += n
			p.RefusedSum += n
		default:
			bad[slot]++
			p.Failed++
		}
	}
	most := 1
	for i := range bars {
		most = max(most, good[i]+bad[i])
	}
	for i := range bars {
		b := pulseBar{X: i * (barWidth + 2), Good: tall(good[i], most), Bad: tall(bad[i], most)}
		b.GoodY = chartHeight - b.Good
		b.BadY = b.GoodY - b.Bad
		p.Bars = append(p.Bars, b)
	}
	for code, n := range refused {
		p.Refused = append(p.Refused, figure{Name: code, Count: n})
	}
	slices.SortFunc(p.Refused, func(a, b figure) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) })
	p.Words = fmt.Sprintf("In the last hour %d runs handed in a result and %d ended without one", p.Ended, p.Failed)
	return p
}

// tall is the height of a part of a bar; a little is not nothing.
func tall(n, most int) int {
	if n == 0 {
		return 0
	}
	return max(n*chartHeight/most, 2)
}
