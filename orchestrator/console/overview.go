package console

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

const maxQueueRows = 6 // rows of each queue

// overviewView is what needs a person now, and how things go.
type overviewView struct {
	Figures  []figure
	Handoffs []picket.Handoff
	Reviews  []picket.PendingReview
	Daily    *picket.DailyEnvelope // nil where no day has a limit
	DailyBar bar
	// Spent is what was spent today, or ever; nil on a day that had begun before
	// this was counted.
	Spent        *budget.Envelope
	NoTokenLimit bool
	Running      *runningView
	Activity     activityChart
	Agents       []figure
}

// figure is a number to see at a glance.
type figure struct {
	Name  string
	Path  string
	Count int64
}

func showOverview(v *request) (page, error) {
	w := overviewView{Activity: newActivityChart(v.stats.Activity, v.now())}
	w.fillFigures(v)
	w.fillMoney(v)
	err := w.loadWaiting(v)
	if err == nil {
		w.Running, err = v.running()
	}
	return page{
		name:   "overview",
		title:  "Overview",
		topics: []string{"task.", "lease.", "handoff.", "agent.", "budget.", "namespace.", "write.", "store.", "run."},
		body:   &w,
	}, err
}

func (w *overviewView) fillFigures(v *request) {
	for _, s := range picket.TaskStates {
		f := figure{Name: string(s), Count: v.stats.Tasks[s], Path: queryPath(tasksPath, "state", string(s))}
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

func (w *overviewView) loadWaiting(v *request) error {
	open, err := v.backend.Handoffs.Handoffs(v.ctx(), picket.HandoffQuery{State: picket.HandoffOpen,
		Limit: maxQueueRows})
	if err != nil {
		return err
	}
	done, err := v.backend.Reviews.Reviews(v.ctx(), picket.ReviewQuery{Limit: maxQueueRows})
	w.Handoffs, w.Reviews = open.Handoffs, done.Reviews
	return err
}

// fillMoney is the day's envelope, where there is a limit a day, with all that was
// spent under it; else what was ever spent.
func (w *overviewView) fillMoney(v *request) {
	w.Daily = v.stats.DailyEnvelope
	if w.Daily == nil {
		ever := v.stats.Money.Spent.Sub(v.stats.Money.Returned)
		w.Spent = &ever
		return
	}
	w.Spent, w.NoTokenLimit = w.Daily.SpentInAll, w.Daily.Limit.Tokens >= budget.MaxTokens
	account := budget.Account{Granted: w.Daily.Limit, Available: w.Daily.Available}
	if w.Spent != nil {
		account.Spent = *w.Spent
	}
	account.Carved = account.Granted.Sub(account.Available).Sub(account.Spent)
	w.DailyBar = accountBar(account)
}

// activityChart is what came of the last hour, a bar for each of its slots.
type activityChart struct {
	Bars       []activityBar
	Ended      int64
	Failed     int64
	HandedOver int64
	Refused    []figure // writes, by why
	Caption    string
}

// activityBar is one bar of the chart, in the units of its picture.
type activityBar struct {
	Name  string // what the bar stands for, if that is shown
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

// newActivityChart draws the slots that were counted; the last bar is the one of now.
func newActivityChart(slots []picket.ActivitySlot, now picket.Instant) activityChart {
	var p activityChart
	var most int64 = 1
	var bars [picket.ActivitySlots]picket.ActivitySlot
	refused := map[picket.Code]int64{}
	for _, s := range slots {
		at := picket.ActivitySlots - 1 - (now/picket.ActivitySlotMs - s.At/picket.ActivitySlotMs)
		if at < 0 || at >= picket.ActivitySlots {
			continue
		}
		bars[at], most = s, max(most, s.Ended+s.Failed)
		p.Ended, p.Failed, p.HandedOver = p.Ended+s.Ended, p.Failed+s.Failed, p.HandedOver+s.Asked
		for code, n := range s.Refused {
			refused[code] += n
		}
	}
	for i, s := range bars {
		b := activityBar{X: i * (barWidth + 2), Good: barHeight(s.Ended, most), Bad: barHeight(s.Failed, most)}
		b.GoodY = chartHeight - b.Good
		b.BadY = b.GoodY - b.Bad
		p.Bars = append(p.Bars, b)
	}
	for code, n := range refused {
		p.Refused = append(p.Refused, figure{Name: string(code), Count: n})
	}
	slices.SortFunc(p.Refused,
		func(a, b figure) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) })
	p.Caption = fmt.Sprintf("In the last hour %d results were handed in and %d runs ended without one", p.Ended,
		p.Failed)
	return p
}

// barHeight is the height of a part of a bar; a little is not nothing.
func barHeight(n, most int64) int {
	if n == 0 {
		return 0
	}
	return int(max(n*chartHeight/most, 2))
}
