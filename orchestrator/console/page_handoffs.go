package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/picket-dev/picket"
)

// handoffReads is what the pages of hand-offs ask of the engine.
type handoffReads interface {
	Handoffs(ctx context.Context, q picket.HandoffQuery) (picket.HandoffPage, error)
	Handoff(ctx context.Context, handoffID string) (picket.Handoff, error)
	Task(ctx context.Context, taskID string) (picket.Task, error)
}

const handoffsPath = "/console/handoffs"

func handoffPath(id string) string { return handoffsPath + "/" + id }

func handoffPages() []route {
	one := handoffsPath + "/:id"
	reads := []string{"GET /api/v1/handoffs/:id", "GET /api/v1/tasks/:id"}
	return []route{
		{
			name:   "handoffs",
			method: get,
			path:   handoffsPath,
			scopes: people,
			as:     []string{"GET /api/v1/handoffs"},
			handle: handoffs,
			nav:    "Hand-offs",
		},
		{name: "handoff", method: get, path: one, scopes: people, as: reads, handle: handoff},
		{name: "handoff.full", method: get, path: one + "/full/:part", scopes: people, as: reads, handle: handoffFull},
		{
			name:   "handoff.claim",
			method: post,
			path:   one + "/claim",
			scopes: people,
			as:     []string{"POST /api/v1/handoffs/:id/claim"},
			handle: claimHandoff,
		},
		{
			name:   "handoff.answer",
			method: post,
			path:   one + "/answer",
			scopes: people,
			as:     []string{"POST /api/v1/handoffs/:id/answer"},
			handle: answerHandoff,
		},
		{
			name:   "handoff.finish",
			method: post,
			path:   one + "/finish",
			scopes: people,
			as:     []string{"POST /api/v1/handoffs/:id/finish"},
			handle: finishHandoff,
		},
		{
			name:   "handoff.cancel",
			method: post,
			path:   one + "/cancel",
			scopes: people,
			as:     []string{"POST /api/v1/handoffs/:id/cancel"},
			handle: cancelHandoff,
		},
		{
			name:   "handoff.retry",
			method: post,
			path:   one + "/retry",
			scopes: operators,
			as:     []string{"POST /api/v1/tasks/:id/retry"},
			handle: retryHandoff,
		},
		{
			name:   "handoff.topup",
			method: post,
			path:   one + "/top-up",
			scopes: operators,
			as:     []string{"POST /api/v1/envelopes/:id/top-up"},
			handle: topUpHandoff,
		},
	}
}

// handoffList is what the list shows.
type handoffList struct {
	State picket.HandoffState
	Tabs  []tab
	Rows  []handoffRow
	Total int64
	Next  string
}

// handoffRow is a hand-off in a list.
type handoffRow struct {
	picket.Handoff
	Path string
	Late bool   // past its deadline
	Who  string // looks after it
}

func (v *visit) handoffRows(all []picket.Handoff) []handoffRow {
	rows := make([]handoffRow, len(all))
	for i, h := range all {
		rows[i] = handoffRow{h, handoffPath(h.HandoffID), !h.Deadline.IsZero() && h.Deadline <= v.now(),
			v.name(h.ClaimedBy)}
	}
	return rows
}

// name is a key as the person who asks knows it.
func (v *visit) name(keyID string) string {
	if keyID == v.session.Principal.KeyID {
		return "you"
	}
	return keyID
}

func handoffs(v *visit) error {
	if err := v.look(); err != nil {
		return err
	}
	state := picket.HandoffState(v.parameter("state"))
	if !slices.Contains(picket.HandoffStates, state) {
		state = picket.HandoffOpen
	}
	found, err := v.desk.Handoffs(v.ctx(),
		picket.HandoffQuery{State: state, Limit: pageRows, Cursor: v.parameter("cursor")})
	if err != nil {
		return err
	}
	list := handoffList{State: state, Rows: v.handoffRows(found.Handoffs), Total: found.Total}
	for _, s := range picket.HandoffStates {
		t := tab{Label: string(s), Path: address(handoffsPath, "state", string(s)), Current: s == state}
		if s == picket.HandoffOpen {
			t.Path, t.Count, t.Counted = handoffsPath, v.stats.Handoffs, true
		}
		list.Tabs = append(list.Tabs, t)
	}
	if found.NextCursor != nil {
		list.Next = address(handoffsPath, "state", string(state), "cursor", *found.NextCursor)
	}
	return v.show(http.StatusOK,
		page{name: "handoffs", title: "Hand-offs", topics: []string{"task.", "handoff.", "lease."}, body: list})
}

// Bounds of the page of one hand-off.
const (
	maxTried   = 30
	maxAnswers = 20
	maxLine    = 300     // of what is one of many, in characters
	maxInPlace = 8 << 10 // of an input that can be edited at once, in bytes
)

// handoffView is what the page of one hand-off shows.
type handoffView struct {
	picket.Handoff
	Path         string
	TaskPath     string
	Open         bool
	Mine         bool
	Late         bool
	Claimer      string
	Task         picket.Task
	Asked        extract
	Given        extract // the answer, when it is decided
	Decider      string
	EditAsked    bool
	Editing      bool   // the input is there to be edited
	Input        string // as it can be edited
	InputAs      string
	InputExtract extract
	TriedMore    int
	Report       *picket.Report
	Stat         extract
	Run          *picket.Run // that asked
	Answers      []answerRow // those before this one, the latest first
	AnswersMore  int
	Typed        handoffTyped
	TopUp        string // the command
}

// answerRow is one earlier answer.
type answerRow struct {
	picket.Answer
	Who   string
	Text  string
	Asked string
	Edits extract
}

// handoffTyped is what a person has typed into one of the forms of the page, so
// that a refusal keeps it.
type handoffTyped struct {
	Form    string // which
	Answer  string
	Option  string
	Input   string
	InputAs string
	Output  string
	As      string
	Reason  string
	USD     string
	Tokens  string
	Edit    bool
}

func handoff(v *visit) error { return v.handoffPage(handoffTyped{}, nil) }

// handoffPage shows the hand-off in the address as it is now, with what went
// wrong on it.
func (v *visit) handoffPage(typed handoffTyped, problem error) error {
	if err := v.look(); err != nil {
		return err
	}
	h, err := v.desk.Handoff(v.ctx(), v.Param("id"))
	if err != nil {
		return err
	}
	t, err := v.desk.Task(v.ctx(), h.TaskID)
	if err != nil {
		return err
	}
	body := v.handoffView(h, t)
	body.Typed = typed
	if typed.Edit {
		body.Input, body.InputAs = typed.Input, typed.InputAs
	}
	body.EditAsked = v.parameter("edit") != ""
	if body.Editing = typed.Edit || len(body.Input) <= maxInPlace || body.EditAsked; !body.Editing {
		body.Input = ""
	}
	status := http.StatusOK
	if problem != nil {
		status = picket.CodeOf(problem).Status()
	}
	return v.show(status, page{
		name:    "handoff",
		title:   h.Title,
		nav:     "handoffs",
		topics:  []string{h.TaskID},
		body:    body,
		problem: problem,
	})
}

func (v *visit) handoffView(h picket.Handoff, t picket.Task) handoffView {
	w := handoffView{
		Handoff:  h,
		Task:     t,
		Path:     handoffPath(h.HandoffID),
		TaskPath: taskPath(h.TaskID),
		Open:     h.State == picket.HandoffOpen,
		Mine:     h.ClaimedBy == v.session.Principal.KeyID,
		Claimer:  v.name(h.ClaimedBy),
		Late:     !h.Deadline.IsZero() && h.Deadline <= v.now(),
		Asked:    extractOf(h.Question, maxExcerpt),
		Report:   h.LastReport,
		Stat:     extractOf(h.Work.Diffstat, maxExcerpt),
	}
	w.TriedMore = max(len(h.Tried)-maxTried, 0)
	w.Tried = h.Tried[:min(len(h.Tried), maxTried)]
	w.Input, w.InputAs = editable(t.CurrentInput())
	w.InputExtract = extractOf(w.Input, maxExcerpt)
	for i, r := range t.Runs {
		if r.RunID == h.RunID {
			w.Run = &t.Runs[i]
		}
	}
	if h.Answer != nil {
		w.Given, w.Decider = extractOf(answerText(*h.Answer), maxExcerpt), v.name(h.Answer.By)
	}
	answers := slices.DeleteFunc(slices.Clone(t.Answers),
		func(a picket.Answer) bool { return a.HandoffID == h.HandoffID })
	slices.Reverse(answers)
	w.AnswersMore = max(len(answers)-maxAnswers, 0)
	for _, a := range answers[:min(len(answers), maxAnswers)] {
		w.Answers = append(w.Answers,
			answerRow{a, v.name(a.By), clip(maxLine, answerText(a)), clip(maxLine, a.Question),
				extractOf(editText(a), maxLine)})
	}
	if h.Kind == picket.HandoffBudget {
		w.TopUp = "picket budget top-up " + h.TaskID + " --usd 0.50"
	}
	return w
}

// answerText is an answer as one text: the option that was chosen and what was
// written beside it.
func answerText(a picket.Answer) string {
	text := pretty(a.Answer)
	if a.Option == nil {
		return text
	}
	if text == "" || text == *a.Option {
		return *a.Option
	}
	return *a.Option + "\n" + text
}

// editText is what an answer has made of the input; "" when nothing.
func editText(a picket.Answer) string {
	if !a.InputEdited {
		return ""
	}
	return cmp.Or(pretty(a.Input), string(a.Input))
}

// handoffFull is one of the texts of a hand-off at full length.
func handoffFull(v *visit) error {
	h, err := v.desk.Handoff(v.ctx(), v.Param("id"))
	if err != nil {
		return err
	}
	switch part := v.Param("part"); part {
	case "question":
		return v.fullText(h.Question)
	case "diffstat":
		return v.fullText(h.Work.Diffstat)
	case "answer":
		if h.Answer != nil {
			return v.fullText(answerText(*h.Answer))
		}
	case "report":
		if h.LastReport != nil {
			return v.fullText(reportText(*h.LastReport))
		}
	case "input":
		t, err := v.desk.Task(v.ctx(), h.TaskID)
		if err != nil {
			return err
		}
		text, _ := editable(t.CurrentInput())
		return v.fullText(text)
	}
	return nowhere(v)
}
