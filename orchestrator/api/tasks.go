package api

import (
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
	want, err := r.taskQuery()
	if err != nil {
		return err
	}
	page, err := r.engine.Tasks(r.ctx(), want)
	return r.respond(page, asParameter(err))
}

func (r request) taskQuery() (want picket.TaskQuery, err error) {
	q, err := r.query("state", "role", "parent", "label", "since", "limit", "cursor")
	if err != nil {
		return want, err
	}
	for _, s := range q.list("state") {
		state, err := oneOf("state", s, picket.TaskStates)
		if err != nil {
			return want, err
		}
		want.States = append(want.States, state)
	}
	if want.Labels, err = q.labels("label"); err != nil {
		return want, err
	}
	if want.Role, err = q.name("role"); err != nil {
		return want, err
	}
	if want.Parent, err = q.id("parent", "task"); err != nil {
		return want, err
	}
	if want.Since, err = q.instant("since"); err != nil {
		return want, err
	}
	want.Limit, want.Cursor, err = q.page()
	return want, err
}

// labels reads label=name=value, which may be there several times.
func (q query) labels(name string) (map[string]string, error) {
	var labels map[string]string
	for _, pair := range q.values[name] {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || k == "" {
			return nil, web.BadParameter(name, "Send label=name=value.", "%.64q is not a label and its value", pair)
		}
		if err := picket.CheckLabel("?"+name, k, v); err != nil {
			return nil, err
		}
		if labels == nil {
			labels = map[string]string{}
		}
		if old, twice := labels[k]; twice && old != v {
			return nil, web.BadParameter(name, "Ask for one value of a label.", "label %.64q is there with two values",
				k)
		}
		labels[k] = v
	}
	return labels, nil
}

// respondTask answers what read finds for the task in the path.
func respondTask[T any](r request, read func(id string) (T, error)) error {
	if err := r.noQuery(); err != nil {
		return err
	}
	id, err := r.id("id", "task")
	if err != nil {
		return err
	}
	found, err := read(id)
	if err != nil {
		return err
	}
	return web.JSON(r.Context, http.StatusOK, found)
}

func getTask(r request) error {
	return respondTask(r, func(id string) (picket.Task, error) { return r.engine.Task(r.ctx(), id) })
}

func explainTask(r request) error {
	return respondTask(r, func(id string) (picket.Explanation, error) { return r.engine.Explain(r.ctx(), id) })
}

type reportList struct {
	Reports []picket.Report `json:"reports"`
}

func taskReports(r request) error {
	return respondTask(r, func(id string) (list reportList, err error) {
		list.Reports, err = r.engine.Reports(r.ctx(), id)
		return list, err
	})
}

func cancelTask(r request) error {
	id, body, by, err := decodeMutation[reasonBody](r, "id", "task")
	if err != nil {
		return err
	}
	if err := body.check(); err != nil {
		return err
	}
	task, err := r.engine.Cancel(r.ctx(), by, id, body.Reason)
	return r.respond(task, err)
}

func retryTask(r request) error {
	id, body, by, err := decodeMutation[reasonBody](r, "id", "task")
	if err != nil {
		return err
	}
	if err := body.check(); err != nil {
		return err
	}
	task, err := r.engine.Retry(r.ctx(), by, id, body.Reason)
	return r.respond(task, err)
}
