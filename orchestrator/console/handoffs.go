package console

import (
	"cmp"
	"slices"

	"github.com/picket-dev/picket"
)

// handoffList is what the list shows.
type handoffList struct {
	State picket.HandoffState
	// Assignee is the person whose hand-offs are shown, or "" for all.
	Assignee string
	Tabs     []tab
	Rows     []picket.Handoff
	Next     string
}

func listHandoffs(v *request) (page, error) {
	state := picket.HandoffState(v.parameter("state"))
	if !slices.Contains(picket.HandoffStates, state) {
		state = picket.HandoffOpen
	}
	who := v.parameter("assignee")
	found, err := v.backend.Handoffs.Handoffs(v.ctx(),
		picket.HandoffQuery{State: state, Assignee: who, Limit: pageRows, Cursor: v.parameter("cursor")})
	if err != nil && picket.CodeOf(err).Status() >= 500 {
		return page{}, err
	}
	list := handoffList{State: state, Assignee: who, Rows: found.Handoffs}
	for _, s := range picket.HandoffStates {
		path := queryPath(handoffsPath, "state", string(s), "assignee", who)
		t := tab{Label: string(s), Path: path, Current: s == state}
		if s == picket.HandoffOpen {
			t.Path, t.Count, t.Counted = queryPath(handoffsPath, "assignee", who), v.stats.Handoffs, true
		}
		list.Tabs = append(list.Tabs, t)
	}
	if found.NextCursor != nil {
		list.Next = queryPath(handoffsPath, "state", string(state), "assignee", who, "cursor", *found.NextCursor)
	}
	topics := []string{"task.", "handoff.", "lease."}
	return page{name: "handoffs", title: "Hand-offs", topics: topics, body: list, problem: err}, nil
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
	Task        picket.Task
	Run         *picket.Run // that asked
	NextInput   string      // of the next run, as it can be edited
	Input       string      // in the form that edits it
	InputAs     string
	EditOpen    bool            // the form that edits the input
	Editable    bool            // here; a long input is edited on a page of its own
	Chosen      string          // the option whose button was pressed, when that was refused
	Answers     []picket.Answer // those before this one, the latest first
	AnswersMore int
	TriedMore   int
}

// showHandoff shows the hand-off in the address as it is now.
func showHandoff(v *request) (page, error) {
	h, err := v.backend.Handoffs.Handoff(v.ctx(), v.Param("id"))
	if err != nil {
		return page{}, err
	}
	t, err := v.backend.Tasks.Task(v.ctx(), h.TaskID)
	if err != nil {
		return page{}, err
	}
	w := handoffView{Handoff: h, Task: t, Run: runOf(t, h.RunID)}
	w.Tried, w.TriedMore = firstRows(h.Tried, maxTried)
	w.NextInput, w.InputAs = editableText(t.CurrentInput())
	w.Input, w.EditOpen = w.NextInput, v.parameter("edit") != ""
	if v.isChecked("edit") {
		w.Input, w.InputAs, w.EditOpen = v.formValue("input"), v.formValue("inputAs"), true
	}
	w.Editable = w.EditOpen || len(w.Input) <= maxInlineInput
	if option, _ := v.chosenOption(h); option != nil {
		w.Chosen = *option
	}
	answers := slices.DeleteFunc(slices.Clone(t.Answers),
		func(a picket.Answer) bool { return a.HandoffID == h.HandoffID })
	slices.Reverse(answers)
	w.Answers, w.AnswersMore = firstRows(answers, maxAnswers)
	return page{name: "handoff", title: h.Title, topics: []string{h.TaskID}, body: w}, nil
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
