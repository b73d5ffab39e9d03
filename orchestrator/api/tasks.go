package api

import (
	"context"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
)

func submitTask(c change[picket.TaskSpec]) (string, picket.Task, error) {
	h := c.Request().Header
	c.body.Trace = picket.ParseTrace(h.Values("traceparent"), h.Values("tracestate"))
	task, err := c.engine.Submit(c.ctx(), c.by, c.body)
	return task.TaskID, task, err
}

func taskQuery(r request) (want picket.TaskQuery, err error) {
	q := r.query("state", "role", "parent", "assignee", "label", "since", "limit", "cursor")
	for _, s := range q.list("state") {
		want.States = append(want.States, oneOf(q, "state", s, picket.TaskStates))
	}
	want.Labels, want.Role, want.Parent = q.labels("label"), q.name("role"), q.id("parent", "task")
	want.Assignee = q.person("assignee")
	want.Since = q.instant("since")
	want.Limit, want.Cursor = q.page()
	return want, q.err
}

// labels reads label=name=value, which may be there several times.
func (q *query) labels(name string) map[string]string {
	var labels map[string]string
	for _, pair := range q.values[name] {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || k == "" {
			q.fail(web.BadParameter(name, "Send label=name=value.", "%.64q is not a label and its value", pair))
			continue
		}
		q.fail(picket.CheckLabel("?"+name, k, v))
		if labels == nil {
			labels = map[string]string{}
		}
		if old, twice := labels[k]; twice && old != v {
			q.fail(web.BadParameter(name, "Ask for one value of a label.", "label %.64q is there with two values", k))
		}
		labels[k] = v
	}
	return labels
}

type reportList struct {
	Reports []picket.Report `json:"reports"`
}

func taskReports(e *orchestrator.Engine, ctx context.Context, id string) (list reportList, err error) {
	list.Reports, err = e.Reports(ctx, id)
	return list, err
}
