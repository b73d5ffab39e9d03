package picket

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket/budget"
)

// MaxSpendingDays is how many UTC days the totals of spending are kept, and so how many a
// report covers at most.
const MaxSpendingDays = 400

// MaxSpendingRows is how many rows a report has at most. Its total covers all of them.
const MaxSpendingRows = 5000

// OtherSpending stands for the roles, models or labels of a day that are beyond those with
// totals of their own.
const OtherSpending = "(other)"

// A report is made by some of these, or by label:NAME.
const (
	SpendingByDay   = "day"
	SpendingByRole  = "role"
	SpendingByModel = "model"

	// SpendingByLabel is followed by the name of a label.
	SpendingByLabel = "label:"
)

// SpendingQuery asks what was spent.
type SpendingQuery struct {
	// By is what the rows are made by: [SpendingByDay], [SpendingByRole], [SpendingByModel], or
	// [SpendingByLabel] with the name of a label. A label goes together with days only. Defaults
	// to days.
	By []string
	// Since is the first UTC day, such as 2026-04-11, or a number of days that end with Until,
	// such as 7d. Defaults to 7d.
	Since string
	// Until is the last UTC day. Defaults to today.
	Until string
}

// Spending is what was spent, as the ledger has it.
type Spending struct {
	Calls int64           `json:"calls"` // that were made; not one for each report of usage
	Spent budget.Envelope `json:"spent"` // what was charged, less what was returned
	// Uncertain is the part that was charged because nobody knew whether a call was made, also if
	// it was corrected later.
	Uncertain budget.Envelope `json:"uncertain,omitzero"`
	// Unverified is what agents reported and nobody was charged for. It is not part of Spent. It
	// is below zero on a day on which earlier reports were charged.
	Unverified budget.Envelope `json:"unverified,omitzero"`
	Returned   budget.Envelope `json:"returned,omitzero"` // by corrections of uncertain calls
}

// Add adds the figures of both.
func (s Spending) Add(o Spending) Spending {
	return Spending{
		Calls:      s.Calls + o.Calls,
		Spent:      s.Spent.Add(o.Spent),
		Uncertain:  s.Uncertain.Add(o.Uncertain),
		Unverified: s.Unverified.Add(o.Unverified),
		Returned:   s.Returned.Add(o.Returned),
	}
}

// Sub subtracts the figures of o.
func (s Spending) Sub(o Spending) Spending {
	return Spending{
		Calls:      s.Calls - o.Calls,
		Spent:      s.Spent.Sub(o.Spent),
		Uncertain:  s.Uncertain.Sub(o.Uncertain),
		Unverified: s.Unverified.Sub(o.Unverified),
		Returned:   s.Returned.Sub(o.Returned),
	}
}

// SpendingRow is a row of a report. Of Day, Role, Model and Label it has those by which the
// report is made. An empty one is for tasks without a role, for what no model was paid for, and
// for tasks without the label.
type SpendingRow struct {
	Day      string `json:"day,omitempty"`
	Role     string `json:"role,omitempty"`
	Model    string `json:"model,omitempty"`
	Label    string `json:"label,omitempty"` // the value
	Spending `json:",inline"`
}

// SpendingReport answers a [SpendingQuery]. Days are UTC. What is booked later, such as a correction,
// counts on the day on which it is booked.
type SpendingReport struct {
	By    []string      `json:"by"`
	Since string        `json:"since"`
	Until string        `json:"until"`
	Rows  []SpendingRow `json:"rows"` // by day, and then what was spent most on first
	Total Spending      `json:"total"`
	// Complete is false where the newest rows of the ledger were not counted yet, where there were
	// more than [MaxSpendingRows] rows, or where a label was beyond those that a day counts.
	Complete bool `json:"complete"`
}

// Check refuses what cannot be asked, fills in the defaults, and returns the first and the last
// day.
func (q *SpendingQuery) Check(now time.Time) (since, until time.Time, err error) {
	if len(q.By) == 0 {
		q.By = []string{SpendingByDay}
	}
	for i, by := range q.By {
		label, isLabel := strings.CutPrefix(by, SpendingByLabel)
		switch {
		case isLabel:
			err = cmp.Or(err, CheckLabel("by", label, ""))
		case by != SpendingByDay && by != SpendingByRole && by != SpendingByModel:
			err = cmp.Or(err,
				error(Invalid("by", "Send day, role, model or label:NAME.", "%.80q is not a thing to report by", by)))
		}
		if slices.Contains(q.By[:i], by) {
			err = cmp.Or(err, error(Invalid("by", "Name it once.", "%.80q is there twice", by)))
		}
	}
	if label := q.Label(); label != "" && slices.ContainsFunc(q.By, func(by string) bool {
		return by != SpendingByDay && by != SpendingByLabel+label
	}) {
		err = cmp.Or(err,
			error(Invalid("by", "Send label:NAME alone or with day.", "a label goes together with days only")))
	}
	if err != nil {
		return since, until, err
	}
	today := now.UTC().Truncate(24 * time.Hour)
	if until = today; q.Until != "" {
		if until, err = time.Parse(time.DateOnly, q.Until); err != nil {
			return since, until, Invalid("until", "Send a UTC date such as 2026-04-11.", "%.40q is not a date", q.Until)
		}
	}
	if since, err = sinceDay(cmp.Or(q.Since, "7d"), until); err != nil {
		return since, until, err
	}
	switch days := int(until.Sub(since)/(24*time.Hour)) + 1; {
	case days < 1:
		return since, until, Invalid("since", "Send a day that is not after until.", "since is after until")
	case days > MaxSpendingDays:
		return since, until, Invalid("since", "Ask for "+strconv.Itoa(MaxSpendingDays)+" days at most.",
			"a report covers %d days at most", MaxSpendingDays)
	}
	return since, until, nil
}

// sinceDay is the first day: a date, or so many days up to until.
func sinceDay(asked string, until time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(asked, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 1 && n <= MaxSpendingDays {
			return until.AddDate(0, 0, 1-n), nil
		}
	}
	if day, err := time.Parse(time.DateOnly, asked); err == nil {
		return day, nil
	}
	return time.Time{}, Invalid("since",
		"Send a number of days such as 7d, 400d at most, or a UTC date such as 2026-04-11.",
		"%.40q is not a number of days and not a date", asked)
}

// Label is the name of the label by which the report is made, or "".
func (q SpendingQuery) Label() string {
	for _, by := range q.By {
		if label, ok := strings.CutPrefix(by, SpendingByLabel); ok {
			return label
		}
	}
	return ""
}

// Records are the report as a table, its first row the heads. cell makes a cell of what people and
// agents wrote.
func (r SpendingReport) Records(cell func(string) string) [][]string {
	heads := append(slices.Clone(r.By), "calls", "usd", "tokens", "uncertain_usd", "uncertain_tokens",
		"unverified_usd", "unverified_tokens", "returned_usd", "returned_tokens")
	records := [][]string{heads}
	for _, row := range r.Rows {
		record := row.Names(r.By)
		for i, name := range record {
			record[i] = cell(name)
		}
		record = append(record, strconv.FormatInt(row.Calls, 10))
		for _, e := range []budget.Envelope{row.Spent, row.Uncertain, row.Unverified, row.Returned} {
			record = append(record, e.USD.String(), strconv.FormatInt(e.Tokens, 10))
		}
		records = append(records, record)
	}
	return records
}

// Names are what the row is about, in the order of by.
func (r SpendingRow) Names(by []string) []string {
	var names []string
	for _, by := range by {
		switch by {
		case SpendingByDay:
			names = append(names, r.Day)
		case SpendingByRole:
			names = append(names, r.Role)
		case SpendingByModel:
			names = append(names, r.Model)
		default:
			names = append(names, r.Label)
		}
	}
	return names
}
