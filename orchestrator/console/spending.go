package console

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/text"
)

// spendingView is what the page of what was spent shows.
type spendingView struct {
	Filter  filter
	Choices []spendingChoice
	Heads   []string
	Rows    []spendingRow
	More    int
	Report  picket.SpendingReport
	Chart   spendingChart
	CSV     string
	Command string // the command that shows the same
}

// spendingChoice is an entry of the list by what to report.
type spendingChoice struct {
	By   string
	Name string
}

var spendingChoices = []spendingChoice{
	{"day", "day"}, {"role", "role"}, {"model", "model"}, {"role,model", "role and model"},
	{"day,role", "day and role"}, {"day,model", "day and model"}, {"label", "label"}, {"day,label", "day and label"},
}

// spendingRow is a row with its names and its share of the largest row.
type spendingRow struct {
	picket.Spending
	Names []string
	Bar   bar
}

// spendingChart draws what was spent on each day.
type spendingChart struct {
	Width   int
	Bars    []activityBar
	Caption string
	Highest string // what was spent on the day of the highest bar, "" if nothing was spent
}

// maxSpendingRows is how many rows the page shows. The download has all.
const maxSpendingRows = 200

func showSpending(v *request) (page, error) {
	s := spendingView{Filter: v.filter("by", "label", "since", "until"), Choices: spendingChoices}
	err := v.fillSpending(&s)
	return page{
		name:    "spending",
		title:   "Spending",
		nav:     "budgets",
		topics:  []string{"budget.", "tool.", "namespace."},
		body:    s,
		problem: err,
	}, nil
}

// spendingQuery is the report that a filter asks for.
func spendingQuery(f filter) picket.SpendingQuery {
	q := picket.SpendingQuery{Since: f["since"], Until: f["until"]}
	for by := range strings.SplitSeq(f["by"], ",") {
		switch {
		case by == "label":
			q.By = append(q.By, picket.SpendingByLabel+f["label"])
		case by != "":
			q.By = append(q.By, by)
		}
	}
	return q
}

func (v *request) fillSpending(s *spendingView) error {
	q := spendingQuery(s.Filter)
	report, err := v.backend.Budgets.Spending(v.ctx(), q)
	if err != nil {
		return err
	}
	s.Report, s.CSV = report, s.Filter.link(spendingPath+"/csv")
	s.Command = "picket budget report --by " + strings.Join(report.By, ",") + " --since " + report.Since +
		" --until " + report.Until
	for _, by := range report.By {
		s.Heads = append(s.Heads, strings.TrimPrefix(by, picket.SpendingByLabel))
	}
	shown, more := firstRows(report.Rows, maxSpendingRows)
	s.More = more
	most := mostSpent(shown)
	for _, row := range shown {
		s.Rows = append(s.Rows, spendingRow{Spending: row.Spending, Names: row.Names(report.By),
			Bar: newBar(most, max(0, spentFigure(row.Spending.Spent, report.Total)), 0, 0)})
	}
	if !slices.Equal(report.By, []string{picket.SpendingByDay}) {
		q.By = nil
		if report, err = v.backend.Budgets.Spending(v.ctx(), q); err != nil {
			return err
		}
	}
	s.Chart = newSpendingChart(report)
	return nil
}

// spentFigure returns the part of an amount that is drawn: dollars, or tokens if the whole report
// has no dollars.
func spentFigure(e budget.Envelope, total picket.Spending) int64 {
	if total.Spent.USD == 0 {
		return e.Tokens
	}
	return int64(e.USD)
}

// spentWords formats the figure that spentFigure returns.
func spentWords(e budget.Envelope, total picket.Spending) string {
	if total.Spent.USD == 0 {
		return groupDigits(e.Tokens) + " tokens"
	}
	return e.USD.Dollars()
}

// mostSpent returns the largest figure of the rows, at least 1.
func mostSpent(rows []picket.SpendingRow) int64 {
	var total picket.Spending
	for _, row := range rows {
		total = total.Add(row.Spending)
	}
	most := int64(1)
	for _, row := range rows {
		most = max(most, spentFigure(row.Spent, total))
	}
	return most
}

// newSpendingChart draws a report by day.
func newSpendingChart(report picket.SpendingReport) spendingChart {
	spent := map[string]picket.Spending{}
	for _, row := range report.Rows {
		spent[row.Day] = row.Spending
	}
	most := mostSpent(report.Rows)
	c := spendingChart{Caption: fmt.Sprintf("Spent on each day from %s to %s, %s in total", report.Since,
		report.Until, report.Total.Spent.USD.Dollars())}
	first, err := time.Parse(time.DateOnly, report.Since)
	for day := first; err == nil && day.Format(time.DateOnly) <= report.Until; day = day.AddDate(0, 0, 1) {
		of := spent[day.Format(time.DateOnly)].Spent
		b := activityBar{X: c.Width, Name: day.Format(time.DateOnly) + ": " + of.USD.Dollars()}
		if figure := spentFigure(of, report.Total); figure > 0 && figure == most {
			c.Highest = spentWords(of, report.Total)
		}
		b.Good = barHeight(max(0, spentFigure(of, report.Total)), most)
		b.GoodY = chartHeight - b.Good
		c.Bars, c.Width = append(c.Bars, b), c.Width+barWidth+2
	}
	return c
}

// saveSpending answers the report as a table for a spreadsheet.
func saveSpending(v *request) error {
	report, err := v.backend.Budgets.Spending(v.ctx(), spendingQuery(v.filter("by", "label", "since", "until")))
	if err != nil {
		return err
	}
	var table bytes.Buffer
	if err := csv.NewWriter(&table).WriteAll(report.Records(text.SpreadsheetCell)); err != nil {
		return err
	}
	v.Response().Header().Set(echo.HeaderContentDisposition, `attachment; filename="picket-spending-`+report.Since+
		`-to-`+report.Until+`.csv"`)
	return v.Blob(http.StatusOK, "text/csv; charset=utf-8", table.Bytes())
}
