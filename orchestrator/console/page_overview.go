package console

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

func overviewPages() []route {
	return []route{
		{
			name:   "overview",
			method: get,
			path:   home,
			scopes: people,
			as:     []string{"GET /api/v1/stats", "GET /api/v1/handoffs", "GET /api/v1/reviews"},
			handle: overview,
			nav:    "Overview",
		},
	}
}

const maxWaiting = 6 // rows of each queue

// overviewView is what needs a person now, and how things go.
type overviewView struct {
	Figures  []figure
	Handoffs []handoffRow
	Reviews  []reviewRow
	Late     bool                  // a hand-off is past its deadline
	House    *picket.DailyEnvelope // nil where no day has a limit
	HouseBar bar
	// Spent is what was spent today, or ever; nil on a day that had begun before
	// this was counted.
	Spent        *budget.Envelope
	NoTokenLimit bool
	Pulse        pulse
	Agents       []figure
}

// figure is a number to see at a glance.
type figure struct {
	Name  string
	Path  string
	Count int64
}

func overview(v *visit) error {
	if err := v.look(); err != nil {
		return err
	}
	var w overviewView
	if err := w.waiting(v); err != nil {
		return err
	}
	w.figures(v)
	w.money(v)
	w.Pulse = pulseOf(v.stats.Activity, v.now())
	return v.show(http.StatusOK, page{
		name:   "overview",
		title:  "Overview",
		topics: []string{"task.", "lease.", "handoff.", "agent.", "budget.", "namespace.", "write.", "store."},
		body:   w,
	})
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
func (w *overviewView) money(v *visit) {
	w.House = v.stats.DailyEnvelope
	if w.House == nil {
		ever := v.stats.Money.Spent.Sub(v.stats.Money.Returned)
		w.Spent = &ever
		return
	}
	w.Spent, w.NoTokenLimit = w.House.SpentInAll, w.House.Limit.Tokens >= budget.MaxTokens
	account := budget.Account{Granted: w.House.Limit, Available: w.House.Available}
	if w.Spent != nil {
		account.Spent = *w.Spent
	}
	account.Carved = account.Granted.Sub(account.Available).Sub(account.Spent)
	w.HouseBar = barOf(account)
}

// pulse is what came of the last hour, a bar for each of its slots.
type pulse struct {
	Bars    []pulseBar
	Ended   int64
	Failed  int64
	Asked   int64
	Refused []figure // writes, by why
	Words   string
}

// pulseBar is one bar of the chart, in the units of its picture.
type pulseBar struct {
	X     int
	Good  int
	Bad   int
	GoodY int
	BadY  int
}

const (
	chartHeight = 60
	barWidth    = 10
)

// pulseOf draws the slots that were counted; the last bar is the one of now.
func pulseOf(slots []picket.ActivitySlot, now picket.Instant) pulse {
	var p pulse
	var most int64 = 1
	var bars [picket.ActivitySlots]picket.ActivitySlot
	refused := map[picket.Code]int64{}
	for _, s := range slots {
		at := picket.ActivitySlots - 1 - (now/picket.ActivitySlotMs - s.At/picket.ActivitySlotMs)
		if at < 0 || at >= picket.ActivitySlots {
			continue
		}
		bars[at], most = s, max(most, s.Ended+s.Failed)
		p.Ended, p.Failed, p.Asked = p.Ended+s.Ended, p.Failed+s.Failed, p.Asked+s.Asked
		for code, n := range s.Refused {
			refused[code] += n
		}
	}
	for i, s := range bars {
		b := pulseBar{X: i * (barWidth + 2), Good: tall(s.Ended, most), Bad: tall(s.Failed, most)}
		b.GoodY = chartHeight - b.Good
		b.BadY = b.GoodY - b.Bad
		p.Bars = append(p.Bars, b)
	}
	for code, n := range refused {
		p.Refused = append(p.Refused, figure{Name: string(code), Count: n})
	}
	slices.SortFunc(p.Refused,
		func(a, b figure) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) })
	p.Words = fmt.Sprintf("In the last hour %d results were handed in and %d runs ended without one", p.Ended, p.Failed)
	return p
}

// tall is the height of a part of a bar; a little is not nothing.
func tall(n, most int64) int {
	if n == 0 {
		return 0
	}
	return int(max(n*chartHeight/most, 2))
}
