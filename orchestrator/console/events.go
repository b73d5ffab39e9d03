package console

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// eventFilter is what the address asks for. Its type is a type of events or, with a dot
// at its end, the beginning of some.
func (v *request) eventFilter() filter { return v.filter("type", "task", "agent", "before") }

func eventQuery(f filter) (q picket.EventQuery, err error) {
	q = picket.EventQuery{TaskID: f["task"], Agent: f["agent"]}
	if want := f["type"]; want != "" {
		for _, t := range picket.EventTypes {
			if t == want || strings.HasSuffix(want, ".") && strings.HasPrefix(t, want) {
				q.Types = append(q.Types, t)
			}
		}
		if q.Types == nil {
			return q, picket.Invalid("type", "Choose one from the list.", "%q is not a type of events", clip(64, want))
		}
	}
	if q.TaskID != "" {
		if err := picket.CheckID("task", "task", q.TaskID); err != nil {
			return q, err
		}
	}
	if q.Agent != "" {
		err = picket.CheckName("agent", q.Agent)
	}
	return q, err
}

// eventsView is what the page shows.
type eventsView struct {
	Filter filter
	Groups []typeGroup
	Rows   []picket.Event
	Next   string // older ones
	Newest string // the beginning, from a later page
	Export string
}

// typeGroup is the types of one noun.
type typeGroup struct {
	Name  string // with its dot
	Types []string
}

var typeGroups = groupTypes()

func groupTypes() []typeGroup {
	groups := map[string][]string{}
	for _, t := range picket.EventTypes {
		noun, _, dotted := strings.Cut(t, ".")
		if !dotted {
			noun = "launcher"
		}
		groups[noun] = append(groups[noun], t)
	}
	var all []typeGroup
	for noun, types := range groups {
		slices.Sort(types)
		all = append(all, typeGroup{noun + ".", types})
	}
	slices.SortFunc(all, func(a, b typeGroup) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// maxEventJSON bounds what is shown of one event, in bytes; the export has all.
const maxEventJSON = 4 << 10

// eventJSON is an event as the log has it. It is empty for one that cannot be shown: the
// others of the page are shown all the same.
func eventJSON(ev picket.Event) string {
	text, err := json.Marshal(ev, json.Deterministic(true))
	if err != nil {
		return ""
	}
	part := newExcerpt(indentJSON(text), maxEventJSON)
	if part.More {
		part.Text += "\n…"
	}
	return part.Text
}

// toneOf is what kind of news an event is: good, bad, ask, money or nothing.
func toneOf(ev picket.Event) string {
	switch ev.Type {
	case picket.EventTaskApproved, picket.EventTaskCompleted, picket.EventTaskFinished:
		return "good"
	case picket.EventTaskRejected, picket.EventTaskCancelled, picket.EventLeaseFailed, picket.EventLeaseExpired,
		picket.EventWriteRefused,
		picket.EventBudgetOverrun, picket.EventBudgetExceeded, picket.EventBudgetUnverified,
		picket.EventInvariantViolated,
		picket.EventStoreAdopted, picket.EventAgentTimedOut:
		return "bad"
	case picket.EventTaskHandoff, picket.EventTaskReview, picket.EventHandoffOverdue, picket.EventPaused,
		picket.EventRunStalled, picket.EventAgentTimeoutWarning:
		return "ask"
	}
	if strings.HasPrefix(ev.Type, "budget.") || ev.Type == picket.EventToolCalled {
		return "money"
	}
	return ""
}

// eventDetail is the one line of an event that tells most.
func eventDetail(ev picket.Event) string {
	var data struct {
		State   string `json:"state"`
		Reason  string `json:"reason"`
		Class   string `json:"class"`
		Code    string `json:"code"`
		Verb    string `json:"verb"`
		Summary string `json:"summary"`
		Tool    string `json:"tool"`
		Note    string `json:"note"`
	}
	_ = json.Unmarshal(ev.Data, &data, json.RejectUnknownMembers(false))
	var parts []string
	for _, part := range []string{data.Verb, data.Code, data.Tool, data.Class, ev.Reason, data.Reason, data.Note,
		data.Summary} {
		if part = clip(120, part); part != "" && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 && data.State != "" && !typeImpliesState(ev.Type) {
		parts = []string{"→ " + clip(40, data.State)}
	}
	return strings.Join(parts, " · ")
}

// typeImpliesState reports whether the type of an event says what state it leads to.
func typeImpliesState(kind string) bool {
	switch kind {
	case picket.EventTaskSubmitted, picket.EventTaskLeased, picket.EventTaskProgress, picket.EventTaskReview,
		picket.EventTaskHandoff,
		picket.EventTaskCompleted, picket.EventTaskCancelled, picket.EventTaskRejected:
		return true
	}
	return false
}

func listEvents(v *request) (page, error) {
	f := v.eventFilter()
	q, err := eventQuery(f)
	list := eventsView{Filter: f, Groups: typeGroups}
	if err == nil {
		q.NewestFirst, q.Limit, q.After = true, pageRows, v.position("before")
		var found picket.EventPage
		found, err = v.backend.Events.Events(v.ctx(), q)
		list.Rows = found.Events
		newest := f.with("before", "")
		list.Export = newest.link(eventsPath + "/export")
		if q.After > 0 {
			list.Newest = newest.link(eventsPath)
		}
		if found.Next != "" && found.Next != "1" {
			list.Next = f.with("before", found.Next).link(eventsPath)
		}
	}
	topics := []string{"*"}
	if list.Newest != "" {
		topics = nil // what is old does not change
	}
	return page{name: "events", title: "Events", topics: topics, body: list, problem: err}, nil
}

// exportPageTimeout is how long a reader of an export may take for a page of it.
const exportPageTimeout = 30 * time.Second

// exportEvents sends every event that the filter lets through, oldest first, one JSON object a
// line. It ends at the event that was the last when it began. If it cannot get there, the download
// is broken off, so that nobody takes it for complete.
func exportEvents(v *request) error {
	if err := v.loadStats(); err != nil {
		return err
	}
	q, err := eventQuery(v.eventFilter())
	if err != nil {
		return err
	}
	q.Limit = 500
	page, err := v.backend.Events.Events(v.ctx(), q) // refused before anything is sent
	if err != nil {
		return err
	}
	v.Response().Header().Set(echo.HeaderContentDisposition, `attachment; filename="picket-events.jsonl"`)
	v.Response().Header().Set(echo.HeaderContentType, "application/x-ndjson")
	v.Response().WriteHeader(http.StatusOK)
	if err := v.sendEvents(q, page); err != nil {
		v.console.log.WarnContext(v.ctx(), "export broken off", "err", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

// sendEvents sends page and all that come after it. Anyone who reads must be
// signed in for as long as it takes.
func (v *request) sendEvents(q picket.EventQuery, page picket.EventPage) error {
	for {
		web.ExtendWriteDeadline(v.Context, exportPageTimeout)
		for _, ev := range page.Events {
			if ev.Seq > v.stats.LastSeq {
				return nil
			}
			line, err := json.Marshal(ev, json.Deterministic(true))
			if err != nil {
				return err
			}
			if _, err := v.Response().Write(append(line, '\n')); err != nil {
				return err
			}
		}
		next, err := strconv.ParseInt(page.Next, 10, 64)
		if err != nil || next <= q.After || next >= v.stats.LastSeq {
			return err
		}
		if _, err := v.backend.Logins.CheckLogin(v.ctx(), v.token, v.site.host); err != nil {
			return err
		}
		q.After = next
		if page, err = v.backend.Events.Events(v.ctx(), q); err != nil {
			return err
		}
	}
}
