package frozen

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestStory drives a server through most verbs and then compares what it left:
// events, refusals, Redis keys, metrics, MCP tools and files.
func TestStory(t *testing.T) {
	s := startServer(t)
	story := &story{server: s}
	story.work()
	story.people()
	story.fleet()
	story.operate()
	compare(t, "refusals", story.refusals)
	compare(t, "answers", story.answers)
	compare(t, "events", eventLines(s))
	compare(t, "metrics", metricLines(s))
	compare(t, "redis", redisLines(t, s.socket()))
	s.stop()
	compare(t, "files", fileLines(t, s.data))
}

// socket is where the server's Redis listens: not in its folder if that path is too
// long for a socket.
func (s *server) socket() string {
	dir := filepath.Join(s.data, "redis")
	if elsewhere, err := os.ReadFile(filepath.Join(dir, "redis.socket")); err == nil {
		return strings.TrimSpace(string(elsewhere))
	}
	return filepath.Join(dir, "redis.sock")
}

type story struct {
	*server
	refusals []string
	answers  []string
}

// refused records a refusal: its code, and the names and texts of its facts.
func (y *story) refused(token, method, path string, body any) {
	y.t.Helper()
	answer := y.call(token, method, path, 0, body)
	line := fmt.Sprintf("%s %s %v %v", method, shape(path), answer["status"], answer["code"])
	var facts []string
	for name, value := range answer {
		switch name {
		case "status", "text", "code", "title", "detail", "remedy", "instance":
		default:
			if text, ok := value.(string); ok && name != "message" {
				name += "=" + shape(text)
			}
			facts = append(facts, name)
		}
	}
	sort.Strings(facts)
	y.refusals = append(y.refusals, strings.TrimSpace(line+" "+strings.Join(facts, " ")))
}

// read records the member names of an answer.
func (y *story) read(path string) object {
	y.t.Helper()
	answer := y.get(path)
	for _, name := range names("", answer) {
		if name != "status" && name != "text" {
			y.answers = append(y.answers, shape(path)+" "+name)
		}
	}
	return answer
}

func (y *story) submit(body object) string {
	y.t.Helper()
	return y.post("/api/v1/tasks", http.StatusCreated, body)["taskId"].(string)
}

// grant takes the one queued task of a role and returns its token.
func (y *story) grant(role string) string {
	y.t.Helper()
	answer := y.post("/api/v1/leases", 0, object{"agentId": "hand-" + role, "role": role})
	leases, _ := answer["leases"].([]any)
	if len(leases) != 1 {
		y.t.Fatalf("role %s: %v, want one lease", role, answer["text"])
	}
	return leases[0].(object)["leaseToken"].(string)
}

func (y *story) tool(token, name string, body any) object {
	y.t.Helper()
	return y.call(token, http.MethodPost, "/v1/tools/"+name, 0, body)
}

func (y *story) work() {
	task := y.submit(object{
		"title":          "one",
		"role":           "work",
		"input":          object{"a": 1},
		"budgetEnvelope": object{"usd": "1", "tokens": 100},
	})
	token := y.grant("work")
	y.call(token, http.MethodPost, "/v1/lease/renew", 200, nil)
	y.call(token, http.MethodPost, "/v1/run/usage", 0,
		object{"source": "claude", "session": "s", "scope": "run", "tokens": 1, "usd": "0.01"})
	y.call(token, http.MethodPost, "/v1/run/logs", 0, object{})
	y.tool(token, "get_task", object{})
	y.tool(token, "report_progress", object{"summary": "half", "nextStep": "rest"})
	y.refused(token, http.MethodPost, "/v1/tools/report_progress", object{})
	y.refused(token, http.MethodPost, "/v1/tools/http_request", object{"url": "http://example.invalid/"})
	y.refused(token, http.MethodPost, "/v1/tools/sql", object{"database": "no", "statement": "select 1"})
	y.tool(token, "delegate_subtask", object{"title": "child", "role": "child"})
	y.tool(token, "request_human_help", object{"question": "which?", "options": []string{"a", "b"}})
	y.refused(token, http.MethodPost, "/v1/lease/renew", nil)
	y.refused("pkl_wrong", http.MethodPost, "/v1/lease/renew", nil)
	y.refused("pkk_wrong", http.MethodGet, "/api/v1/tasks", nil)
	y.read("/api/v1/tasks/" + task)
	y.read("/api/v1/tasks/" + task + "/reports")
	y.read("/api/v1/tasks/" + task + "/explain")
	y.read("/api/v1/tasks/" + task + "/evidence")
	y.refused(y.key, http.MethodGet, "/api/v1/tasks/task_00000000000000000000000000", nil)
	y.refused(y.key, http.MethodPost, "/api/v1/tasks", object{"title": ""})
}

func (y *story) people() {
	for _, handoff := range y.read("/api/v1/handoffs")["handoffs"].([]any) {
		id := handoff.(object)["handoffId"].(string)
		y.post("/api/v1/handoffs/"+id+"/claim", 200, object{})
		y.post("/api/v1/handoffs/"+id+"/answer", 200, object{"answer": "a"})
		y.refused(y.key, http.MethodPost, "/api/v1/handoffs/"+id+"/answer", object{"answer": "b"})
	}
	for _, decision := range []string{"approve", "reject"} {
		role := decision + "d"
		task := y.submit(object{"title": decision, "role": role})
		y.tool(y.grant(role), "mark_complete", object{"output": object{"done": true}, "summary": "s"})
		y.read("/api/v1/reviews")
		y.post("/api/v1/reviews/"+task+"/"+decision, 200, object{"note": "because"})
		y.refused(y.key, http.MethodPost, "/api/v1/tasks/"+task+"/cancel", object{})
		y.refused(y.key, http.MethodPost, "/api/v1/reviews/"+task+"/"+decision, object{"note": "again"})
	}
	failed := y.submit(object{"title": "fails", "role": "fails"})
	y.tool(y.grant("fails"), "mark_failed", object{"reason": "cannot", "retryable": false})
	y.post("/api/v1/tasks/"+failed+"/retry", 0, object{"reason": "try"})
	y.post("/api/v1/tasks/"+failed+"/cancel", 0, object{"reason": "enough"})
	lost := y.submit(object{"title": "lost", "role": "lost"})
	token := y.grant("lost")
	y.post("/api/v1/leases/"+lost+"/expire", 200, object{"reason": "gone"})
	y.refused(token, http.MethodPost, "/v1/tools/report_progress", object{"summary": "late"})
	y.read("/api/v1/leases")
	y.read("/api/v1/tasks")
	y.read("/api/v1/ledger")
	y.read("/api/v1/spending?by=day")
	spending := y.submit(object{"title": "money", "budgetEnvelope": object{"usd": "1", "tokens": 100}})
	y.read("/api/v1/tasks/" + spending)
	y.post("/api/v1/envelopes/"+spending+"/top-up", 200, object{"usd": "1", "reason": "more"})
	y.read("/api/v1/envelopes/" + spending)
}

func (y *story) fleet() {
	agent := y.post("/api/v1/agents", 0, object{"agent_id": "agent-one", "role_id": "fleet", "name": "one",
		"capabilities": []string{"go"}, "capacity": object{"max_concurrent_tasks": 1}})
	y.call(y.key, http.MethodPost, "/api/v1/agents/agent-one/heartbeat", 0,
		object{"status": "active", "current_load": 0,
			"client_timestamp": agent["registered_at"]})
	y.read("/api/v1/agents/agent-one")
	y.read("/api/v1/agents")
	y.read("/api/v1/pools")
	y.call(y.key, http.MethodPatch, "/api/v1/agents/agent-one/status", 0, object{"status": "draining"})
	y.call(y.key, http.MethodDelete, "/api/v1/agents/agent-one", 0, nil)
	y.refused(y.key, http.MethodPost, "/api/v1/agents/agent-one/heartbeat",
		object{"status": "active", "client_timestamp": agent["registered_at"]})
	y.refused(y.key, http.MethodGet, "/api/v1/agents/nobody", nil)
}

func (y *story) operate() {
	y.post("/api/v1/pause", 200, object{"reason": "stop"})
	y.refused(y.key, http.MethodPost, "/api/v1/leases", object{"agentId": "a", "role": "child"})
	y.post("/api/v1/resume", 200, object{})
	made := y.post("/api/v1/keys", 201, object{"name": "reader", "scopes": []string{"reviewer"}})
	token, _ := made["key"].(string)
	y.refused(token, http.MethodPost, "/api/v1/pause", object{})
	client := y.post("/api/v1/keys", 201, object{"name": "partner", "scopes": []string{"client"},
		"client": object{"roles": []string{"coder"}, "maxOpen": 20, "ratePerMinute": 60}})
	y.refused(fmt.Sprint(client["key"]), http.MethodGet, "/api/v1/tasks", nil)
	y.read("/api/v1/keys")
	if id, ok := made["keyId"].(string); ok {
		y.call(y.key, http.MethodDelete, "/api/v1/keys/"+id, 0, nil)
	}
	y.refused(token, http.MethodGet, "/api/v1/tasks", nil)
	hook := y.post("/api/v1/webhooks", 0,
		object{"name": "hook", "url": "http://127.0.0.1:9/", "types": []string{"task.created"}})
	if id, ok := hook["webhookId"].(string); ok {
		y.read("/api/v1/webhooks/" + id)
		y.post("/api/v1/webhooks/"+id+"/revive", 0, nil)
		y.call(y.key, http.MethodDelete, "/api/v1/webhooks/"+id, 0, nil)
	}
	y.read("/api/v1/stats")
	y.read("/api/v1/prices")
	y.read("/api/v1/audit")
	y.refused(y.key, http.MethodGet, "/api/v1/no-such-route", nil)
	y.refused(y.key, http.MethodPost, "/api/v1/invariants", object{"repair": "no"})
}

// eventLines lists the types of all events with the member names of their data.
func eventLines(s *server) []string {
	var lines []string
	for _, event := range s.get("/api/v1/events?limit=200")["events"].([]any) {
		event := event.(object)
		for _, name := range names("", event) {
			lines = append(lines, fmt.Sprintf("%v %s", event["type"], name))
		}
	}
	return lines
}

var (
	aLabel = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)
	ownIDs = regexp.MustCompile(`[0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{8,}|[0-9A-Za-z_-]{22,}|\d+`)
)

// sweeps are verbs that the reaper calls when they are due. Whether that is so before the metrics are read depends on
// time.
var sweeps = []string{"chore", "count", "expire_due", "judge", "overdue", "reap_hold"}

// metricLines lists names, types, labels and the verbs that were called, without the sweeps.
func metricLines(s *server) []string {
	var lines []string
	for line := range strings.Lines(s.call(s.key, http.MethodGet, "/metrics", 200, nil)["text"].(string)) {
		line = strings.TrimSpace(line)
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "# TYPE "), " ")
		name, labels, _ := strings.Cut(name, "{")
		if !strings.HasPrefix(name, "picket_") {
			continue
		}
		if strings.HasPrefix(line, "# TYPE ") {
			lines = append(lines, strings.TrimPrefix(line, "# TYPE "))
		}
		for _, label := range aLabel.FindAllStringSubmatch(labels, -1) {
			lines = append(lines, name+" label "+label[1])
			if label[1] == "script" && !slices.Contains(sweeps, label[2]) {
				lines = append(lines, "script "+label[2])
			}
		}
	}
	return lines
}

// redisLines lists the kinds of keys with their types and hash fields.
func redisLines(t *testing.T, socket string) []string {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	defer client.Close()
	ctx := context.Background()
	awaitCounted(t, client)
	var lines []string
	keys := client.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		key := keys.Val()
		kind := client.Type(ctx, key).Val()
		lines = append(lines, shape(key)+" "+kind)
		if kind == "hash" {
			for _, field := range client.HKeys(ctx, key).Val() {
				if strings.HasSuffix(key, ":totals") { // what follows the first word are values
					field, _, _ = strings.Cut(field, " ")
				}
				lines = append(lines, shape(key)+" field "+shape(field))
			}
		}
	}
	if err := keys.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// awaitCounted waits until a reaper has counted every run that has ended and every charge.
func awaitCounted(t *testing.T, client *redis.Client) {
	t.Helper()
	ctx, prefix := context.Background(), "pk:{default}:"
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		newest := client.XRevRangeN(ctx, prefix+"ledger", "+", "-", 1).Val()
		byRole := client.HGet(ctx, prefix+"totals", "ledger").Val() + "-0"
		byDay := client.HGet(ctx, prefix+"meta", "spending").Val() + "-0"
		if client.Exists(ctx, prefix+"uncounted").Val() == 0 &&
			(len(newest) == 0 || newest[0].ID == byRole && newest[0].ID == byDay) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("something is never counted")
		}
	}
}

func fileLines(t *testing.T, dir string) []string {
	var lines []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, _ fs.DirEntry, err error) error {
		lines = append(lines, shape(path))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// shape replaces what differs between two runs.
func shape(text string) string { return ownIDs.ReplaceAllString(text, "#") }

// names lists the members of value at any depth.
func names(path string, value any) []string {
	var all []string
	switch value := value.(type) {
	case object:
		for name, inner := range value {
			at := strings.TrimPrefix(path+"."+shape(name), ".")
			all = append(append(all, at), names(at, inner)...)
		}
	case []any:
		for _, inner := range value {
			all = append(all, names(path+"[]", inner)...)
		}
	}
	return all
}
