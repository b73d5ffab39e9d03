package console

import (
	"errors"
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

func submitRoutes() []route {
	as := []string{"POST /api/v1/tasks"}
	return []route{
		show("task.new", tasksPath+"/new", operatorScopes, showTaskForm, as...),
		act("task.submit", tasksPath, operatorScopes, submitTask, as...),
	}
}

// taskForm is what a person has typed.
type taskForm struct {
	Title    string
	Input    string
	Role     string
	Agent    string
	Needs    string
	Labels   string
	Priority string
	USD      string
	Tokens   string
	Review   string
	// Wrong is the field that was refused.
	Wrong   string
	Default budget.Envelope // what an empty amount stands for
}

func showTaskForm(v *request) error {
	return v.render(page{
		name:   "submit",
		title:  "New task",
		nav:    "tasks",
		topics: nil,
		body: taskForm{
			Role:     v.parameter("role"),
			Priority: strconv.Itoa(picket.DefaultPriority),
			Review:   string(picket.ReviewByHuman),
			Default:  v.backend.Changes.DefaultEnvelope(),
		},
	})
}

func submitTask(v *request) error {
	f := taskForm{
		Title:    v.formValue("title"),
		Input:    v.formValue("input"),
		Role:     strings.TrimSpace(v.formValue("role")),
		Agent:    strings.TrimSpace(v.formValue("agent")),
		Needs:    v.formValue("needs"),
		Labels:   v.formValue("labels"),
		Priority: strings.TrimSpace(v.formValue("priority")),
		USD:      strings.TrimSpace(v.formValue("usd")),
		Tokens:   strings.TrimSpace(v.formValue("tokens")),
		Review:   v.formValue("review"),
		Default:  v.backend.Changes.DefaultEnvelope(),
	}
	made, err := f.submit(v)
	if err != nil {
		f.Wrong = formField(err)
		return v.render(page{name: "submit", title: "New task", nav: "tasks", body: f, problem: err})
	}
	return v.redirectWithFlash(taskPath(made.TaskID), "submitted", "")
}

func (f taskForm) submit(v *request) (picket.Task, error) {
	spec, err := f.spec()
	if err != nil {
		return picket.Task{}, err
	}
	by, err := v.caller()
	if err != nil {
		return picket.Task{}, err
	}
	return v.backend.Changes.Submit(v.ctx(), by, spec)
}

// formField is the field of a form that a refusal is about.
func formField(err error) string {
	var refusal *picket.Error
	if !errors.As(err, &refusal) {
		return ""
	}
	field, _ := refusal.Facts["field"].(string)
	parts := strings.Split(strings.TrimPrefix(field, "/"), "/")
	if parts[0] == "budgetEnvelope" {
		return "usd"
	}
	return parts[0]
}

func (f taskForm) spec() (spec picket.TaskSpec, err error) {
	spec = picket.TaskSpec{
		Title:  f.Title,
		Role:   f.Role,
		Agent:  f.Agent,
		Needs:  splitWords(f.Needs),
		Review: picket.ReviewBy(f.Review),
	}
	if spec.Input, err = parseInput(f.Input); err != nil {
		return spec, err
	}
	if f.Priority != "" {
		n, err := strconv.Atoi(f.Priority)
		if err != nil {
			return spec, picket.Invalid("/priority", "Write a number from 0 to 9.", "priority is not a number")
		}
		spec.Priority = &n
	}
	if spec.Labels, err = parseLabels(f.Labels); err != nil {
		return spec, err
	}
	if f.USD+f.Tokens == "" {
		return spec, nil // what is usual
	}
	e, err := parseAmount(f.USD, f.Tokens)
	if f.USD == "" {
		e.USD = f.Default.USD
	}
	if f.Tokens == "" {
		e.Tokens = f.Default.Tokens
	}
	spec.BudgetEnvelope = &e
	return spec, err
}

// splitWords are words between commas or blanks.
func splitWords(text string) []string {
	return strings.FieldsFunc(text,
		func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' || r == '\r' })
}

// parseInput is JSON where somebody wrote an object, an array or a quoted text,
// else the text as it is. What only looks like JSON is a text.
func parseInput(text string) (picket.RawJSON, error) {
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return nil, nil
	}
	if strings.ContainsAny(trimmed[:1], `{["`) && checkJSON(picket.RawJSON(trimmed)) == nil {
		return picket.RawJSON(trimmed), nil
	}
	return quoteJSON(strings.ReplaceAll(text, "\r\n", "\n")), nil
}

func parseLabels(text string) (map[string]string, error) {
	labels := map[string]string{}
	for _, one := range splitWords(text) {
		name, value, ok := strings.Cut(one, "=")
		if !ok {
			return nil, picket.Invalid("/labels", "Write them name=value, one after the other.",
				"%q is not a label and its value", clip(64, one))
		}
		labels[name] = value
	}
	return labels, nil
}

// parseAmount reads dollars and tokens; an empty field is nothing.
func parseAmount(usd, tokens string) (e budget.Envelope, err error) {
	if usd != "" {
		if e.USD, err = budget.ParseMoney(strings.TrimPrefix(usd, "$")); err != nil || e.USD < 0 {
			return e, picket.Invalid("/usd", "Write dollars such as 0.50.", "%q is not an amount of dollars",
				clip(40, usd))
		}
	}
	if tokens != "" {
		e.Tokens, err = strconv.ParseInt(strings.NewReplacer(",", "", " ", "", "_", "", "\u202f", "").Replace(tokens),
			10, 64)
		if err != nil || e.Check() != nil {
			return e, picket.Invalid("/tokens", "Write a number such as 100000.", "%q is not a number of tokens",
				clip(40, tokens))
		}
	}
	return e, nil
}
