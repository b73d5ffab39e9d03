package agenttoagent

import (
	"slices"
	"time"

	"github.com/picket-dev/picket/internal/conformance"
)

// conversation begins some tasks of one context, and answers it and the ids, the oldest first.
func (c caller) conversation(n int) (contextID string, ids []string) {
	for range n {
		var change []fields
		if contextID != "" {
			change = []fields{{"contextId": contextID}}
		}
		task := c.openTask(change...)
		contextID, ids = text(task, "contextId"), append(ids, text(task, "id"))
	}
	return contextID, ids
}

// lists lists the tasks of a context.
func (c caller) lists(contextID string, change ...fields) fields {
	return c.gets("ListTasks", merge(append([]fields{{"contextId": contextID}}, change...)...))
}

// idsIn are the ids of the tasks in a page.
func idsIn(page fields) (ids []string) {
	for _, task := range list(page, "tasks") {
		ids = append(ids, text(task, "id"))
	}
	return ids
}

// pages reads all pages of a context.
func (c caller) pages(contextID string, size int) (all []fields) {
	for query := (fields{"pageSize": size}); len(all) < 20; {
		page := c.lists(contextID, query)
		all = append(all, page)
		if text(page, "nextPageToken") == "" {
			return all
		}
		query = fields{"pageSize": size, "pageToken": page["nextPageToken"]}
	}
	c.Fail("a last page", "20 pages, and none is the last one")
	return nil
}

func sorted(ids []string) []string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return ids
}

// refusesQuery expects that a list with a parameter is refused.
func refusesQuery(name string, value any) func(*Trial) {
	return each(func(c caller) { c.refuses("ListTasks", fields{name: value}, invalidParams) })
}

// Section 3.1.4: lists of tasks.
var listChecks = checks{
	"3.1.4/members": each(func(c caller) {
		contextID, _ := c.conversation(1)
		page := c.lists(contextID)
		for _, name := range []string{"tasks", "nextPageToken", "pageSize", "totalSize"} {
			c.holds("the member "+name, has(page, name))
		}
	}),
	"3.1.4/empty": each(func(c caller) {
		page := c.lists(c.ID("no-such-context"))
		tasks, isArray := page["tasks"].([]any)
		c.holds("an empty array of tasks", isArray && len(tasks) == 0)
	}),
	"3.1.4/filter-context": each(func(c caller) {
		contextID, ids := c.conversation(2)
		c.openTask()
		c.ExpectEqual("ids", sorted(idsIn(c.lists(contextID))), sorted(ids))
	}),
	"3.1.4/filter-status": each(func(c caller) {
		contextID, ids := c.conversation(2)
		c.cancels(ids[0])
		c.awaitEnd(ids[0])
		c.ExpectEqual("ids", idsIn(c.lists(contextID, fields{"status": canceled})), ids[:1])
	}),
	"3.1.4/filter-time": each(func(c caller) {
		contextID, ids := c.conversation(2)
		at := conformance.Instant(text(c.read(ids[1]), "status.timestamp"))
		c.holds("a timestamp", !at.IsZero())
		after := func(d time.Duration) string { return at.Add(d).UTC().Format("2006-01-02T15:04:05.000Z") }
		c.holds("the task of that instant", slices.Contains(idsIn(c.lists(contextID,
			fields{"statusTimestampAfter": after(0)})), ids[1]))
		c.ExpectEqual("ids", idsIn(c.lists(contextID, fields{"statusTimestampAfter": after(time.Hour)})), []string(nil))
	}),
	"3.1.4/page-size": each(func(c caller) {
		contextID, _ := c.conversation(2)
		page := c.lists(contextID, fields{"pageSize": 1})
		c.holds("one task", len(list(page, "tasks")) == 1)
		c.ExpectEqual("pageSize", page["pageSize"], 1)
	}),
	"3.1.4/page-size-default": each(func(c caller) {
		page := c.gets("ListTasks", fields{})
		c.holds("at most 50 tasks", len(list(page, "tasks")) <= 50)
	}),
	"3.1.4/page-size-zero":     refusesQuery("pageSize", 0),
	"3.1.4/page-size-negative": refusesQuery("pageSize", -1),
	"3.1.4/page-size-above":    refusesQuery("pageSize", 101),
	"3.1.4/total": each(func(c caller) {
		contextID, _ := c.conversation(2)
		c.ExpectEqual("totalSize", c.lists(contextID, fields{"pageSize": 1})["totalSize"], 2)
	}),
	"3.1.4/cursor": each(func(c caller) {
		contextID, ids := c.conversation(3)
		var seen []string
		for _, page := range c.pages(contextID, 2) {
			seen = append(seen, idsIn(page)...)
		}
		c.ExpectEqual("ids", sorted(seen), sorted(ids))
	}),
	"3.1.4/cursor-holds": each(func(c caller) {
		contextID, ids := c.conversation(3)
		first := c.lists(contextID, fields{"pageSize": 2})
		c.openTask(fields{"contextId": contextID})
		second := c.lists(contextID, fields{"pageSize": 2, "pageToken": first["nextPageToken"]})
		seen := slices.DeleteFunc(append(idsIn(first), idsIn(second)...), func(id string) bool {
			return !slices.Contains(ids, id)
		})
		c.ExpectEqual("ids", sorted(seen), sorted(ids))
	}),
	"3.1.4/token-more": each(func(c caller) {
		contextID, _ := c.conversation(2)
		c.holds("a nextPageToken", text(c.lists(contextID, fields{"pageSize": 1}), "nextPageToken") != "")
	}),
	"3.1.4/token-last": each(func(c caller) {
		contextID, _ := c.conversation(1)
		token, there := c.lists(contextID)["nextPageToken"]
		c.holds(`"nextPageToken": ""`, there && token == "")
	}),
	"3.1.4/sorted": each(func(c caller) {
		contextID, _ := c.conversation(3)
		var last time.Time
		for _, task := range list(c.lists(contextID), "tasks") {
			at := conformance.Instant(text(task, "status.timestamp"))
			c.holds("a timestamp", !at.IsZero())
			c.holds("the latest change first", last.IsZero() || !at.After(last))
			last = at
		}
	}),
	"3.1.4/sorted-by-change": each(func(c caller) {
		contextID, ids := c.conversation(3)
		c.Sleep(10 * time.Millisecond) // so that the timestamps differ
		c.cancels(ids[0])
		c.awaitEnd(ids[0])
		c.ExpectEqual("first id", idsIn(c.lists(contextID))[0], ids[0])
	}),
	"3.1.4/no-artifacts": each(func(c caller) {
		task := c.done("tck-artifact-text")
		for _, query := range []fields{{}, {"includeArtifacts": false}} {
			for _, one := range list(c.lists(text(task, "contextId"), query), "tasks") {
				c.holds("no member artifacts", !has(one, "artifacts"))
			}
		}
	}),
	"3.1.4/artifacts": each(func(c caller) {
		task := c.done("tck-artifact-text")
		page := c.lists(text(task, "contextId"), fields{"includeArtifacts": true})
		c.holds("one task", len(list(page, "tasks")) == 1)
		c.holds("its artifacts", len(list(list(page, "tasks")[0], "artifacts")) > 0)
		c.ExpectEqual("artifacts", list(page, "tasks")[0]["artifacts"], task["artifacts"])
	}),
}
