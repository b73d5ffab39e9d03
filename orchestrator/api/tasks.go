package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

func submitTask(r request) error {
	_, spec, by, err := decodeMutation[picket.TaskSpec](r, "", "")
	if err != nil {
		return err
	}
	h := r.Request().Header
	spec.Trace = picket.ParseTrace(h.Values("traceparent"), h.Values("tracestate"))
	task, err := r.engine.Submit(r.ctx(), by, spec)
	if err != nil {
		return err
	}
	r.Response().Header().Set(echo.HeaderLocation, "/api/v1/tasks/"+task.TaskID)
	return web.JSON(r.Context, http.StatusCreated, task)
}

func listTasks(r request) error {
	q := r.query("state", "role", "parent", "label", "since", "limit", "cursor")
	var want picket.TaskQuery
	for _, s := range q.list("state") {
		want.States = append(want.States, oneOf(q, "state", s, picket.TaskStates))
	}
	want.Labels, want.Role, want.Parent = q.labels("label"), q.name("role"), q.id("parent", "task")
	want.Since = q.instant("since")
	want.Limit, want.Cursor = q.page()
	if q.err != nil {
		return q.err
	}
	page, err := r.engine.Tasks(r.ctx(), want)
	return r.respond(page, asParameter(err))
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

func getTask(r request) error { return answerOne(r, "id", "task", r.engine.Task) }

func explainTask(r request) error { return answerOne(r, "id", "task", r.engine.Explain) }

type reportList struct {
	Reports []picket.Report `json:"reports"`
}

func taskReports(r request) error {
	return answerOne(r, "id", "task", func(ctx context.Context, id string) (list reportList, err error) {
		list.Reports, err = r.engine.Reports(ctx, id)
		return list, err
	})
}

func cancelTask(r request) error { return changeTask(r, "id", "task", r.engine.Cancel) }

func retryTask(r request) error { return changeTask(r, "id", "task", r.engine.Retry) }
