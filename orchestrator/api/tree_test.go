package api_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

func TestTreeOverHTTP(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		root := p.submit(`{"title":"whole","budgetEnvelope":{"usd":1}}`)
		_, held := p.lease()
		var made []string
		for _, title := range []string{"one", "two"} {
			d, err := p.Delegate(t.Context(), held, title, picket.Subtask{Title: title})
			must(t, err)
			made = append(made, d.TaskID)
		}
		a := p.want(200, "GET", "/api/v1/tasks/"+root, "operator", "")
		for _, id := range made {
			if !strings.Contains(a.raw, id) {
				t.Errorf("the task does not name %s: %s", id, a.raw)
			}
		}
		a = p.want(200, "GET", "/api/v1/tasks?parent="+root, "reviewer", "")
		var got []string
		for _, row := range a.body["tasks"].([]any) {
			task := row.(map[string]any)
			got = append(got, task["taskId"].(string))
			if task["parent"] != root || task["root"] != root || task["reviewBy"] != "parent" {
				t.Errorf("listed %v", task)
			}
		}
		slices.Reverse(got)
		if !slices.Equal(got, made) {
			t.Errorf("listed %v, made %v", got, made)
		}
		if a := p.want(200, "GET", "/api/v1/tasks?parent="+made[0], "operator", ""); len(a.body["tasks"].([]any)) != 0 {
			t.Errorf("below a leaf: %s", a.raw)
		}
		p.wantCode(picket.CodeValidation, "GET", "/api/v1/tasks?parent=x", "operator", "")
		p.want(200, "POST", "/api/v1/tasks/"+root+"/cancel", "operator", `{"reason":"enough"}`)
		if a := p.want(200, "GET", "/api/v1/tasks?state=cancelled&parent="+root, "operator",
			""); len(a.body["tasks"].([]any)) != 2 {
			t.Errorf("cancelled with the root are %s", a.raw)
		}
	})
}
