package demo

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

var reviewChapter = chapter{
	title: "the review",
	lead:  "Nothing is done before a person confirms it. Anyone who rejects a result can have it fixed in the same step.",
	prepare: func(st *demoEnv) ([]chapterStep, error) {
		r := &reviewDemo{demoEnv: st}
		r.script = st.path("handoff.sh")
		return []chapterStep{r.find, r.reject, r.approve, r.checkLog}, nil
	},
}

// reviewDemo is the play: what the question's task has left, rejected and repaired.
type reviewDemo struct {
	*demoEnv
	script string
	id     string
	fix    string
}

func (r *reviewDemo) find(ctx context.Context) error {
	page, err := r.s.Reviews.List(ctx, picket.ReviewQuery{})
	if err != nil {
		return err
	}
	for _, waiting := range page.Reviews {
		if cli.OutputText(waiting.Output) == "both tables are kept" {
			r.id = waiting.TaskID
		}
	}
	if r.id == "" {
		return fmt.Errorf("not observed: the result of the task that asked, in review")
	}
	_, err = r.runShell(ctx, exit.OK, "picket review list")
	return err
}

var fixTask = lazyregexp.New(`picket task watch (task_[0-9A-Z]{26})`)

func (r *reviewDemo) reject(ctx context.Context) error {
	text, err := r.runShell(ctx, exit.OK,
		"PICKET_API_KEY=$BEN picket review reject "+r.id+` --note "not without a backup" --fix "make a backup, too"`)
	if err != nil {
		return err
	}
	found := fixTask().FindStringSubmatch(text)
	if found == nil {
		return fmt.Errorf("not observed: the task that fixes the rejected one")
	}
	r.fix = found[1]
	if _, err := r.start("adapter", "--", r.script); err != nil {
		return err
	}
	t, err := r.awaitTask(ctx, r.fix, "the fix in review",
		func(t picket.Task) bool { return t.State == picket.TaskReview })
	if err != nil {
		return err
	}
	if t.Fixes == nil || *t.Fixes != r.id || cli.OutputText(t.Output) != "both tables are kept, and there is a backup" {
		return fmt.Errorf("the fix of %s does not heed the note: %q", r.id, cli.OutputText(t.Output))
	}
	r.narrate("The fix was queued in the same step and handed the note. Its agent has done it: %q.",
		cli.OutputText(t.Output))
	return nil
}

func (r *reviewDemo) approve(ctx context.Context) error {
	if err := r.awaitExit(ctx, r.fix); err != nil {
		return err
	}
	if _, err := r.runShell(ctx, exit.OK, "PICKET_API_KEY=$ANN picket review approve "+r.fix); err != nil {
		return err
	}
	for id, want := range map[string]picket.TaskState{r.id: picket.TaskRejected, r.fix: picket.TaskCompleted} {
		t, err := r.task(ctx, id)
		if err != nil {
			return err
		}
		if t.State != want {
			return fmt.Errorf("%s is %s, not %s", id, t.State, want)
		}
	}
	return nil
}

// checkLog looks at what the log says of every decision of the two: who made it,
// what was before and what after.
func (r *reviewDemo) checkLog(ctx context.Context) error {
	names := map[string]string{}
	keys, err := r.s.Keys.List(ctx)
	if err != nil {
		return err
	}
	for _, k := range keys {
		names[k.KeyID] = k.Name
	}
	var told []string
	for _, of := range []struct {
		task string
		kind string
		by   string
	}{
		{r.id, picket.EventTaskAnswered, "ann"}, {r.id, picket.EventTaskRejected, "ben"},
		{r.fix, picket.EventTaskApproved, "ann"},
	} {
		log, err := r.s.Events.List(ctx, picket.EventQuery{TaskID: of.task, Types: []string{of.kind}})
		if err != nil {
			return err
		}
		var data struct {
			Before jsontext.Value
			After  jsontext.Value
		}
		if len(log.Events) != 1 ||
			json.Unmarshal(log.Events[0].Data, &data, json.MatchCaseInsensitiveNames(true)) != nil {
			return fmt.Errorf("expected one %s in the log, found %d", of.kind, len(log.Events))
		}
		e := log.Events[0]
		if names[e.Actor] != of.by || data.Before == nil || data.After == nil {
			return fmt.Errorf("expected %s by %s with before and after, got %s", of.kind, of.by, e.Data)
		}
		told = append(told, fmt.Sprintf("%s by %s", of.kind, of.by))
	}
	r.narrate("The log has every decision, who made it, and what was before and after: %s.", strings.Join(told, ", "))
	return nil
}
