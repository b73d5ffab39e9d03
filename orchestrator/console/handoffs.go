package console

import (
	"cmp"
	"slices"

	"github.com/picket-dev/picket"
)

const handoffsPath = "/console/handoffs"

func handoffPath(id string) string { return handoffsPath + "/" + id }

func handoffRoutes() []route {
	one := handoffsPath + "/:id"
	reads := []string{"GET /api/v1/handoffs/:id", "GET /api/v1/tasks/:id"}
	return []route{
		show("handoffs", handoffsPath, personScopes, listHandoffs, "GET /api/v1/handoffs").inNav("Hand-offs"),
		show("handoff", one, personScopes, showHandoff, reads...),
		show("handoff.full", one+"/full/:part", personScopes, showHandoffText, reads...),
		act("handoff.claim", one+"/claim", personScopes, claimHandoff, "POST /api/v1/handoffs/:id/claim"),
		act("handoff.answer", one+"/answer", personScopes, answerHandoff, "POST /api/v1/handoffs/:id/answer"),
		act("handoff.finish", one+"/finish", personScopes, finishHandoff, "POST /api/v1/handoffs/:id/finish"),
		act("handoff.cancel", one+"/cancel", personScopes, cancelHandoff, "POST /api/v1/handoffs/:id/cancel"),
		act("handoff.retry", one+"/retry", operatorScopes, retryHandoff, "POST /api/v1/tasks/:id/retry"),
		act("handoff.topup", one+"/top-up", operatorScopes, topUpHandoff, "POST /api/v1/envelopes/:id/top-up"),
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

func (v *request) handoffRows(all []picket.Handoff) []handoffRow {
	rows := make([]handoffRow, len(all))
	for i, h := range all {
		rows[i] = handoffRow{h, handoffPath(h.HandoffID), !h.Deadline.IsZero() && h.Deadline <= v.now(),
			v.displayName(h.ClaimedBy)}
	}
	return rows
}

// displayName is a key as the person who asks knows it.
func (v *request) displayName(keyID string) string {
	if keyID == v.login.Principal.KeyID {
		return "you"
	}
	return keyID
}

func listHandoffs(v *request) error {
	if err := v.loadStats(); err != nil {
		return err
	}
	state := picket.HandoffState(v.parameter("state"))
	if !slices.Contains(picket.HandoffStates, state) {
		state = picket.HandoffOpen
	}
	found, err := v.backend.Handoffs.Handoffs(v.ctx(),
		picket.HandoffQuery{State: state, Limit: pageRows, Cursor: v.parameter("cursor")})
	if err != nil {
		return err
	}
	list := handoffList{State: state, Rows: v.handoffRows(found.Handoffs), Total: found.Total}
	for _, s := range picket.HandoffStates {
		t := tab{Label: string(s), Path: queryPath(handoffsPath, "state", string(s)), Current: s == state}
		if s == picket.HandoffOpen {
			t.Path, t.Count, t.Counted = handoffsPath, v.stats.Handoffs, true
		}
		list.Tabs = append(list.Tabs, t)
	}
	if found.NextCursor != nil {
		list.Next = queryPath(handoffsPath, "state", string(state), "cursor", *found.NextCursor)
	}
	topics := []string{"task.", "handoff.", "lease."}
	return v.render(page{name: "handoffs", title: "Hand-offs", topics: topics, body: list})
}

// Bounds of the page of one hand-off.
const (
	maxTried       = 30
	maxAnswers     = 20
	maxSnippet     = 300     // of what is one of many, in characters
	maxInlineInput = 8 << 10 // of an input that can be edited at once, in bytes
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
	QuestionText excerpt
	AnswerText   excerpt // the answer, when it is decided
	Decider      string
	EditAsked    bool
	Editing      bool   // the input is there to be edited
	Input        string // as it can be edited
	InputAs      string
	InputExtract excerpt
	TriedMore    int
	Report       *picket.Report
	Stat         excerpt
	Run          *picket.Run // that asked
	Answers      []answerRow // those before this one, the latest first
	AnswersMore  int
	Typed        handoffInput
	TopUp        string // the command
}

// answerRow is one earlier answer.
type answerRow struct {
	picket.Answer
	Who          string
	Text         string
	QuestionText string
	Edits        excerpt
}

// handoffInput is what a person has typed into one of the forms of the page, so
// that a refusal keeps it.
type handoffInput struct {
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

func showHandoff(v *request) error { return v.handoffPage(handoffInput{}, nil) }

// handoffPage shows the hand-off in the address as it is now, with what went
// wrong on it.
func (v *request) handoffPage(typed handoffInput, problem error) error {
	if err := v.loadStats(); err != nil {
		return err
	}
	h, err := v.backend.Handoffs.Handoff(v.ctx(), v.Param("id"))
	if err != nil {
		return err
	}
	t, err := v.backend.Tasks.Task(v.ctx(), h.TaskID)
	if err != nil {
		return err
	}
	body := v.newHandoffView(h, t)
	body.Typed = typed
	if typed.Edit {
		body.Input, body.InputAs = typed.Input, typed.InputAs
	}
	body.EditAsked = v.parameter("edit") != ""
	if body.Editing = typed.Edit || len(body.Input) <= maxInlineInput || body.EditAsked; !body.Editing {
		body.Input = ""
	}
	return v.render(page{
		name:    "handoff",
		title:   h.Title,
		nav:     "handoffs",
		topics:  []string{h.TaskID},
		body:    body,
		problem: problem,
	})
}

func (v *request) newHandoffView(h picket.Handoff, t picket.Task) handoffView {
	w := handoffView{
		Handoff:      h,
		Task:         t,
		Path:         handoffPath(h.HandoffID),
		TaskPath:     taskPath(h.TaskID),
		Open:         h.State == picket.HandoffOpen,
		Mine:         h.ClaimedBy == v.login.Principal.KeyID,
		Claimer:      v.displayName(h.ClaimedBy),
		Late:         !h.Deadline.IsZero() && h.Deadline <= v.now(),
		QuestionText: newExcerpt(h.Question, maxExcerpt),
		Report:       h.LastReport,
		Stat:         newExcerpt(h.Work.Diffstat, maxExcerpt),
	}
	w.TriedMore = max(len(h.Tried)-maxTried, 0)
	w.Tried = h.Tried[:min(len(h.Tried), maxTried)]
	w.Input, w.InputAs = editableText(t.CurrentInput())
	w.InputExtract = newExcerpt(w.Input, maxExcerpt)
	for i, r := range t.Runs {
		if r.RunID == h.RunID {
			w.Run = &t.Runs[i]
		}
	}
	if h.Answer != nil {
		w.AnswerText, w.Decider = newExcerpt(answerText(*h.Answer), maxExcerpt), v.displayName(h.Answer.By)
	}
	answers := slices.DeleteFunc(slices.Clone(t.Answers),
		func(a picket.Answer) bool { return a.HandoffID == h.HandoffID })
	slices.Reverse(answers)
	w.AnswersMore = max(len(answers)-maxAnswers, 0)
	for _, a := range answers[:min(len(answers), maxAnswers)] {
		w.Answers = append(w.Answers,
			answerRow{a, v.displayName(a.By), clip(maxSnippet, answerText(a)), clip(maxSnippet, a.Question),
				newExcerpt(editText(a), maxSnippet)})
	}
	if h.Kind == picket.HandoffBudget {
		w.TopUp = "picket budget top-up " + h.TaskID + " --usd 0.50"
	}
	return w
}

// answerText is an answer as one text: the option that was chosen and what was
// written beside it.
func answerText(a picket.Answer) string {
	text := indentJSON(a.Answer)
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
	return cmp.Or(indentJSON(a.Input), string(a.Input))
}

// showHandoffText is one of the texts of a hand-off at full length.
func showHandoffText(v *request) error {
	h, err := v.backend.Handoffs.Handoff(v.ctx(), v.Param("id"))
	if err != nil {
		return err
	}
	switch part := v.Param("part"); part {
	case "question":
		return v.writeText(h.Question)
	case "diffstat":
		return v.writeText(h.Work.Diffstat)
	case "answer":
		if h.Answer != nil {
			return v.writeText(answerText(*h.Answer))
		}
	case "report":
		if h.LastReport != nil {
			return v.writeText(reportText(*h.LastReport))
		}
	case "input":
		t, err := v.backend.Tasks.Task(v.ctx(), h.TaskID)
		if err != nil {
			return err
		}
		text, _ := editableText(t.CurrentInput())
		return v.writeText(text)
	}
	return notFound(v)
}
