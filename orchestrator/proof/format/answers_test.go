package format

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// answers are what an engine says about a namespace, by question.
type answers map[string]jsontext.Value

// questioner asks an engine about every record of its namespace.
type questioner struct {
	*orchestrator.Engine
	t    *testing.T
	ctx  context.Context
	raw  redis.UniversalClient
	said answers
}

// askEverything asks an engine about every record of its namespace.
func askEverything(t *testing.T, e *orchestrator.Engine, raw redis.UniversalClient) answers {
	t.Helper()
	q := &questioner{e, t, t.Context(), raw, answers{}}
	q.askTotals()
	q.askLists()
	for _, id := range q.ids("task:") {
		q.askTask(id)
	}
	for _, id := range q.ids("env:") {
		ask(q, "envelope "+id, func() (any, error) { return q.Envelope(q.ctx, id) })
		ask(q, "ledger "+id, func() (any, error) {
			return q.Ledger(q.ctx, picket.LedgerQuery{TaskID: id, Limit: 1000})
		})
	}
	for _, id := range q.ids("handoff:") {
		ask(q, "handoff "+id, func() (any, error) { return q.Handoff(q.ctx, id) })
	}
	q.askAgents()
	return q.said
}

// ids are those of all records of a kind.
func (q *questioner) ids(kind string) (ids []string) {
	prefix := "pk:{" + q.Namespace() + "}:" + kind
	keys := q.raw.Scan(q.ctx, 0, prefix+"*", 1000).Iterator()
	for keys.Next(q.ctx) {
		ids = append(ids, strings.TrimPrefix(keys.Val(), prefix))
	}
	kit.OK(q.t, keys.Err())
	slices.Sort(ids)
	return slices.Compact(ids)
}

// ask notes an answer, or how it was refused. An answer that there is nothing is left out.
func ask(q *questioner, question string, call func() (any, error)) {
	q.t.Helper()
	got, err := call()
	if err != nil {
		got = "refused: " + err.Error()
	}
	text, err := json.Marshal(got, json.Deterministic(true))
	kit.OK(q.t, err)
	if said := string(text); said != "[]" && said != "null" && !strings.HasPrefix(said, `"refused: there is no such`) {
		q.said[question] = text
	}
}

func (q *questioner) askTotals() {
	ask(q, "stats", func() (any, error) {
		s, err := q.Stats(q.ctx)
		s.ClockOffsetMs, s.SinceTickMs, s.Memory = 0, 0, picket.MemoryStats{} // of the machine
		return s, err
	})
	ask(q, "totals", func() (any, error) { return totals(q.ctx, q.Engine) })
	ask(q, "spending", func() (any, error) {
		return q.Spending(q.ctx, picket.SpendingQuery{By: []string{picket.SpendingByDay, picket.SpendingByRole},
			Since: "2026-09-01", Until: "2026-09-30"})
	})
	ask(q, "inspection", func() (any, error) { return kit.InspectAll(q.ctx, q.Engine, false) })
}

// totals are those of the runs that have ended, in a form that JSON has.
func totals(ctx context.Context, e *orchestrator.Engine) (any, error) {
	got, err := e.Totals(ctx)
	ended := map[string]int64{}
	for end, n := range got.Ended {
		text, err := json.Marshal(end)
		if err != nil {
			return nil, err
		}
		ended[string(text)] = n
	}
	return map[string]any{"roles": got.Roles, "ended": ended}, err
}

func (q *questioner) askLists() {
	cursor := int64(0)
	for {
		page, err := q.Events(q.ctx, picket.EventQuery{After: cursor, Limit: 1000})
		kit.OK(q.t, err)
		if len(page.Events) == 0 {
			break
		}
		cursor = page.Events[len(page.Events)-1].Seq
		ask(q, fmt.Sprint("events up to ", cursor), func() (any, error) { return page.Events, nil })
	}
	ask(q, "audit", func() (any, error) { return q.Events(q.ctx, picket.EventQuery{Audit: true, Limit: 1000}) })
	ask(q, "ledger", func() (any, error) { return q.Ledger(q.ctx, picket.LedgerQuery{Limit: 1000}) })
	ask(q, "leases", func() (any, error) { return q.Leases(q.ctx) })
	q.askTasks("tasks", picket.TaskQuery{Limit: 200})
	for _, state := range picket.TaskStates {
		q.askTasks("tasks "+string(state), picket.TaskQuery{States: []picket.TaskState{state}, Limit: 200})
	}
	for _, state := range []picket.HandoffState{picket.HandoffOpen, picket.HandoffAnswered, picket.HandoffCancelled} {
		ask(q, "hand-offs "+string(state), func() (any, error) {
			return q.Handoffs(q.ctx, picket.HandoffQuery{State: state, Limit: 200})
		})
	}
	ask(q, "reviews", func() (any, error) { return q.Reviews(q.ctx, picket.ReviewQuery{Limit: 200}) })
	ask(q, "client tasks", func() (any, error) {
		return q.ClientTasks(q.ctx, picket.ClientTaskQuery{Limit: 100, Emitted: true})
	})
	ask(q, "keys", func() (any, error) { return q.Keys(q.ctx) })
	ask(q, "webhooks", func() (any, error) { return q.Webhooks(q.ctx) })
	ask(q, "policies", func() (any, error) { return q.Policies(q.ctx, picket.PolicyQuery{Limit: 100}) })
	ask(q, "pools", func() (any, error) { return q.Pools(q.ctx, "", "") })
}

// askTasks asks for the order of a list. The tasks themselves are asked for one by one.
func (q *questioner) askTasks(question string, of picket.TaskQuery) {
	q.t.Helper()
	ask(q, question, func() (any, error) {
		page, err := q.Tasks(q.ctx, of)
		var ids []string
		for _, task := range page.Tasks {
			ids = append(ids, task.TaskID)
		}
		return ids, err
	})
}

func (q *questioner) askTask(id string) {
	ask(q, "task "+id, func() (any, error) { return q.Task(q.ctx, id) })
	ask(q, "explain "+id, func() (any, error) { return q.Explain(q.ctx, id) })
	ask(q, "reports "+id, func() (any, error) { return q.Reports(q.ctx, id) })
	ask(q, "evidence "+id, func() (any, error) { return q.Evidence(q.ctx, id, "") })
	ask(q, "bundle "+id, func() (any, error) { return q.Bundle(q.ctx, id) })
	ask(q, "log "+id, func() (any, error) { return q.Log(q.ctx, id, "", "stdout", 0, 1<<16) })
	q.askTasks("subtasks "+id, picket.TaskQuery{Parent: id, Limit: 200})
	ask(q, "lease of "+id, func() (any, error) { return q.FindLeases(q.ctx, picket.LeaseQuery{TaskID: id}) })
	ask(q, "messages of "+id, func() (any, error) {
		return q.Messages(q.ctx, kit.Operator, id, picket.MessageQuery{Limit: 100})
	})
}

func (q *questioner) askAgents() {
	ask(q, "agents", func() (any, error) {
		return q.Agents(q.ctx, picket.AgentQuery{Attached: true, Statuses: picket.AgentStatuses})
	})
	for _, id := range q.ids("agent:") {
		ask(q, "agent "+id, func() (any, error) { a, _, err := q.Agent(q.ctx, id); return a, err })
		ask(q, "leases of "+id, func() (any, error) { return q.FindLeases(q.ctx, picket.LeaseQuery{AgentID: id}) })
	}
	for _, id := range q.ids("asession:") {
		ask(q, "session "+id, func() (any, error) { return q.AgentSession(q.ctx, id) })
		ask(q, "prompts of "+id, func() (any, error) { return q.SessionPrompts(q.ctx, id, 0, 50) })
	}
}

// text is the answers of the namespaces as JSON.
func text(said map[string]answers) []byte {
	text, err := json.Marshal(said, json.Deterministic(true), jsontext.Multiline(true))
	if err != nil {
		panic(err)
	}
	return text
}

// pack writes a file that is compressed.
func pack(t *testing.T, path string, data []byte) {
	t.Helper()
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	kit.OK(t, err)
	_, err = w.Write(data)
	kit.OK(t, err)
	kit.OK(t, w.Close())
	kit.OK(t, os.WriteFile(path, packed.Bytes(), 0o644))
	t.Logf("%s: %d bytes, %d unpacked", filepath.Base(path), packed.Len(), len(data))
}

// unpack reads a file that is compressed.
func unpack(t *testing.T, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	kit.OK(t, err)
	defer f.Close()
	r, err := gzip.NewReader(f)
	kit.OK(t, err)
	data, err := io.ReadAll(r)
	kit.OK(t, err)
	return data
}
