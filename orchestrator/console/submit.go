package console

import (
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// taskForm is what the form shows beside what was typed.
type taskForm struct {
	Wrong   string          // the field that was refused
	Default budget.Envelope // what an empty amount stands for
}

func showTaskForm(v *request) (page, error) {
	if v.problem == nil { // the form shows this as if it had been typed
		v.Request().PostForm = url.Values{
			"role":     {v.parameter("role")},
			"priority": {strconv.Itoa(picket.DefaultPriority)},
			"review":   {string(picket.ReviewByHuman)},
		}
	}
	form := taskForm{Wrong: formField(v.problem), Default: v.backend.Changes.DefaultEnvelope()}
	return page{name: "submit", title: "New task", body: form}, nil
}

func submitTask(v *request, by picket.Caller, _ string) (string, error) {
	spec, err := v.taskSpec()
	if err != nil {
		return "", err
	}
	made, err := v.backend.Changes.Submit(v.ctx(), by, spec)
	return withFlash(taskPath(made.TaskID), "submitted", ""), err
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

// taskSpec is the task that the person has typed.
func (v *request) taskSpec() (spec picket.TaskSpec, err error) {
	spec = picket.TaskSpec{
		Title:    v.formValue("title"),
		Role:     v.formWord("role"),
		Agent:    v.formWord("agent"),
		Assignee: strings.TrimSpace(v.formValue("assignee")),
		Needs:    splitWords(v.formValue("needs")),
		Review:   picket.ReviewBy(v.formValue("review")),
	}
	if spec.Input, err = parseInput(v.formValue("input")); err != nil {
		return spec, err
	}
	if priority := v.formWord("priority"); priority != "" {
		n, err := strconv.Atoi(priority)
		if err != nil {
			return spec, picket.Invalid("/priority", "Write a number from 0 to 9.", "priority is not a number")
		}
		spec.Priority = &n
	}
	if spec.Labels, err = parseLabels(v.formValue("labels")); err != nil {
		return spec, err
	}
	usd, tokens := v.formWord("usd"), v.formWord("tokens")
	if usd+tokens == "" {
		return spec, nil // what is usual
	}
	e, err := parseAmount(usd, tokens)
	usual := v.backend.Changes.DefaultEnvelope()
	if usd == "" {
		e.USD = usual.USD
	}
	if tokens == "" {
		e.Tokens = usual.Tokens
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
	return quoteJSON(text), nil
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
