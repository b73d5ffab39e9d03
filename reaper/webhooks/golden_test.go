package webhooks_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/reaper/webhooks"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// The bytes that a receiver got stand in testdata/notices, one file for each kind of notice
// and each format. Only the random part of ids is replaced by a number.
const goldenDir = "testdata/notices"

// TestNoticesAreTheGoldenFiles makes each kind of notice happen, in an engine on the
// virtual clock, and compares what two targets were sent with the golden files.
func TestNoticesAreTheGoldenFiles(t *testing.T) {
	virtual(t, func(h *fixture) {
		got := &bodies{}
		for _, format := range picket.WebhookFormats {
			_, err := h.CreateWebhook(h.ctx, operator, picket.WebhookSpec{Name: string(format), Format: format,
				URL: picket.Secret("https://" + string(format) + ".test/")})
			must(t, err)
		}
		stop := h.startDeliverer(got, func(cfg *webhooks.Config) {
			s, err := webhooks.NewSender(webhooks.SenderConfig{PublicURL: "https://picket.example.com"})
			must(t, err)
			s.SetTransport(got)
			cfg.Sender = s
		})
		defer stop()
		h.makeNotices(got)
		h.eventually("all deliveries", func() bool {
			last, err := h.LastSeq(h.ctx)
			must(t, err)
			for _, w := range h.webhooks() {
				if w.Cursor != fmt.Sprint(last) {
					return false
				}
			}
			return true
		})
		got.compare(t)
	})
}

func (h *fixture) webhooks() []picket.Webhook {
	h.t.Helper()
	list, err := h.Webhooks(h.ctx)
	must(h.t, err)
	return list
}

// makeNotices makes one notice of each kind that an engine can be brought to make here.
func (h *fixture) makeNotices(got *bodies) {
	h.t.Helper()
	h.askPeople(got)
	h.remindPeople(got)
	h.endRuns(got)
	h.spend(got)
	h.loseAgents(got)
	got.expect("task.handoff many options")
	// One of the options that the event leaves out is called like the number of another one.
	h.ask("Choose a name", picket.HelpRequest{Question: "Which one?",
		Options: []string{"a", "b", "c", "d", "e", "f", "g", "h", "1"}})
	_, err := h.Pause(h.ctx, operator, false, "the vendor is down")
	must(h.t, err)
	_, err = h.Resume(h.ctx, operator, "it is up again")
	must(h.t, err)
}

// hostile is text of an agent that tries to be more than text.
const hostile = "> Which <!channel> key, @here?\nSee https://evil.test and `picket review approve` *now* " +
	"_please_ in a_b :white_check_mark::+1: by 10:42:17\x1b[2J"

// lease submits a task and takes it.
func (h *fixture) lease(title, agent string, change func(*picket.TaskSpec)) picket.LeaseCredential {
	h.t.Helper()
	spec := picket.TaskSpec{Title: title, Agent: agent, Labels: map[string]string{"team": "payments", "issue": "42"}}
	if change != nil {
		change(&spec)
	}
	_, err := h.Submit(h.ctx, operator, spec)
	must(h.t, err)
	leases, err := h.Acquire(h.ctx, operator, picket.AcquireRequest{AgentID: agent})
	must(h.t, err)
	held, err := rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	must(h.t, err)
	_, err = h.Renew(h.ctx, held)
	must(h.t, err)
	return held
}

func (h *fixture) ask(title string, req picket.HelpRequest) (taskID, handoffID string) {
	h.t.Helper()
	held := h.lease(title, "coder-1", nil)
	got, err := h.RequestHelp(h.ctx, held, req)
	must(h.t, err)
	return held.TaskID, got.HandoffID
}

func (h *fixture) askPeople(got *bodies) {
	h.t.Helper()
	soon := 60
	got.expect("task.handoff options")
	h.ask("Choose a database", picket.HelpRequest{Question: "Which one?",
		Options: []string{"the staging one", "a new one"}, DeadlineSeconds: &soon,
		OnDeadline: picket.OnDeadlineEscalate})
	got.expect("handoff.overdue")
	time.Sleep(65 * time.Second)
	got.expect("task.handoff hostile")
	h.ask("Fix "+hostile, picket.HelpRequest{Question: hostile, Options: []string{hostile}})
	got.expect("task.handoff budget")
	h.ask("Read all pages", picket.HelpRequest{Kind: picket.HandoffBudget, Question: "May I spend $2 more?"})
	got.expect("task.handoff question")
	_, id := h.ask("Name the release", picket.HelpRequest{Question: "What is it called?"})
	got.expect("task.finished")
	_, err := h.Finish(h.ctx, operator, id, picket.RawJSON(`"Aurora"`))
	must(h.t, err)

	review := func(title string) string {
		held := h.lease(title, "coder-1", nil)
		got.expect("task.review")
		_, err := h.Complete(h.ctx, held, picket.Completion{Output: picket.RawJSON(`{"tests":12}`),
			Summary: "All 12 tests pass.\nThe flaky one waited for a port."})
		must(h.t, err)
		return held.TaskID
	}
	task := review("Fix the flaky test")
	got.expect("task.approved")
	_, err = h.Approve(h.ctx, operator, task, picket.Decision{Note: "well done"})
	must(h.t, err)
	task = review("Fix the flaky test")
	got.expect("task.rejected")
	_, _, err = h.Reject(h.ctx, operator, task, picket.Decision{Note: "the test is gone"}, nil)
	must(h.t, err)
	held := h.lease("Count the files", "coder-1", func(s *picket.TaskSpec) { s.Review = picket.ReviewByNone })
	got.expect("task.completed")
	_, err = h.Complete(h.ctx, held, picket.Completion{Output: picket.RawJSON(`"there are 120 files"`)})
	must(h.t, err)
	held = h.lease("Not wanted any more", "coder-1", nil)
	got.expect("task.cancelled")
	_, err = h.Cancel(h.ctx, operator, held.TaskID, "a duplicate")
	must(h.t, err)
}

// remindPeople lets a hand-off and a review wait for longer than a rule allows.
func (h *fixture) remindPeople(got *bodies) {
	h.t.Helper()
	forAda := func(s *picket.TaskSpec) { s.Assignee, s.Labels = "ada@example.com", map[string]string{"map": "yes"} }
	held := h.lease("Choose a region", "coder-1", forAda)
	got.expect("task.handoff for-a-person")
	help, err := h.RequestHelp(h.ctx, held,
		picket.HelpRequest{Kind: picket.HandoffApproval, Question: "Is eu-1 right?"})
	must(h.t, err)
	_, err = h.Claim(h.ctx, operator, help.HandoffID, picket.ClaimRequest{Assignee: "ben"})
	must(h.t, err)
	held = h.lease("Draw the map", "coder-1", forAda)
	got.expect("task.review")
	_, err = h.Complete(h.ctx, held, picket.Completion{Output: picket.RawJSON(`1`), Summary: "It has 12 regions."})
	must(h.t, err)
	time.Sleep(2 * time.Minute)
	got.expect("handoff.reminder", "review.reminder")
	_, err = h.RemindPeople(h.ctx, []picket.ReminderRule{{Name: "soon", After: time.Minute, Label: "map=yes"}}, 100)
	must(h.t, err)
}

func (h *fixture) endRuns(got *bodies) {
	h.t.Helper()
	hour := 3600
	held := h.lease("Migrate the table", "coder-1", func(s *picket.TaskSpec) { s.TimeoutSeconds = &hour })
	seconds := func(n float64) *float64 { return &n }
	send := func(kind, id string, fields picket.LauncherFields, idle *float64) {
		h.t.Helper()
		must(h.t, h.RunEvents(h.ctx, held, []picket.RunEvent{{Type: kind, ID: id, TaskID: held.TaskID,
			LauncherFields: fields, IdleSeconds: idle}}))
	}
	got.expect("run.stalled")
	time.Sleep(time.Minute)
	send(picket.EventRunStalled, "1", picket.LauncherFields{}, seconds(60))
	got.expect("agent-timeout-warning")
	send(picket.EventAgentTimeoutWarning, "2", picket.LauncherFields{Agent: "claude", ElapsedSeconds: seconds(2890),
		TimeoutSeconds: seconds(3600), RemainingSeconds: seconds(710)}, nil)
	got.expect("agent-timed-out")
	send(picket.EventAgentTimedOut, "3", picket.LauncherFields{Agent: "claude", TimeoutSeconds: seconds(3600)}, nil)
	got.expect("lease.released handoff")
	_, err := h.Release(h.ctx, held, picket.Exit{Class: picket.ExitTimeout})
	must(h.t, err)
	held = h.lease("Build the image", "coder-1", func(s *picket.TaskSpec) { s.Escalate = picket.EscalateFail })
	got.expect("lease.failed failed")
	_, err = h.Fail(h.ctx, held, "no space left on "+hostile, false)
	must(h.t, err)
	once := 1
	h.lease("Send the report", "coder-1", func(s *picket.TaskSpec) {
		s.Retry, s.LeaseWindowSeconds = &picket.Retry{MaxAttempts: &once}, &[]int{10}[0]
	})
	got.expect("lease.expired handoff")
	time.Sleep(12 * time.Second)
	_, err = h.ExpireDue(h.ctx, 10)
	must(h.t, err)
}

func (h *fixture) spend(got *bodies) {
	h.t.Helper()
	usd := func(s string) budget.Money {
		m, err := budget.ParseMoney(s)
		must(h.t, err)
		return m
	}
	held := h.lease("Translate the manual", "coder-1", func(s *picket.TaskSpec) {
		s.BudgetEnvelope = &budget.Envelope{USD: usd("1")}
	})
	reserve := func(id, dollars string) (picket.Reservation, error) {
		return h.Reserve(h.ctx, held, picket.CallRequest{CallID: "r" + id, Nonce: id, Tool: "http_request",
			Reserve: budget.Envelope{USD: usd(dollars)}, PriceVersion: "v1", Effects: picket.EffectsNone,
			TimeoutMs: 60_000})
	}
	got.expect("budget.warning")
	r, err := reserve("1", "0.85")
	must(h.t, err)
	settle := func(r picket.Reservation, dollars string) {
		h.t.Helper()
		_, err := h.Settle(h.ctx, picket.Settlement{CallID: r.CallID, TaskID: r.TaskID, Nonce: r.Nonce,
			Outcome: picket.CallDone, Cost: budget.Envelope{USD: usd(dollars)}})
		must(h.t, err)
	}
	settle(r, "0.85")
	got.expect("budget.exceeded")
	for _, id := range []string{"2", "3"} { // the second one is not a notice
		if _, err = reserve(id, "0.4"); picket.CodeOf(err) != picket.CodeBudgetExceeded {
			h.t.Fatal(err)
		}
	}
	r, err = reserve("4", "0.05")
	must(h.t, err)
	got.expect("budget.overrun", "budget.warning 95")
	settle(r, "0.3")
}

func (h *fixture) loseAgents(got *bodies) {
	h.t.Helper()
	interval, unhealthy, dead := 5, 10, 20
	soon := &picket.Thresholds{IntervalSeconds: &interval, UnhealthyAfterSeconds: &unhealthy, DeadAfterSeconds: &dead}
	register := func(id string) {
		_, err := h.Register(h.ctx, operator, picket.Registration{AgentID: id, RoleID: "coder", Name: "Ada",
			Heartbeat: soon})
		must(h.t, err)
		h.lease("Index the archive", id, func(s *picket.TaskSpec) { s.LeaseWindowSeconds = &[]int{3600}[0] })
	}
	judge := func() {
		_, err := h.JudgeAgents(h.ctx, 10)
		must(h.t, err)
	}
	register("silent-1")
	got.expect("agent.lifecycle unhealthy")
	time.Sleep(12 * time.Second)
	judge()
	got.expect("agent.lifecycle dead")
	time.Sleep(12 * time.Second)
	judge()
	register("drained-1")
	at := 3
	_, err := h.ChangeAgent(h.ctx, operator, "drained-1", nil,
		picket.AgentStatusChange{Status: picket.AgentDraining, DrainTimeoutSeconds: &at})
	must(h.t, err)
	got.expect("agent.drain_overdue")
	time.Sleep(5 * time.Second)
	judge()
}

// bodies keeps what was posted, and the names of the notices in the order in which they
// have to come.
type bodies struct {
	target
	names []string
	posts map[string][][]byte // by host
}

func (b *bodies) expect(names ...string) { b.names = append(b.names, names...) }

func (b *bodies) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.posts == nil {
		b.posts = map[string][][]byte{}
	}
	b.posts[r.URL.Host] = append(b.posts[r.URL.Host], body)
	return status(200)
}

var randomID = regexp.MustCompile(`[0-9A-HJKMNP-TV-Z]{26}`)

// compare holds what was posted against the golden files.
func (b *bodies) compare(t *testing.T) {
	t.Helper()
	ids := map[string]string{}
	settle := func(body []byte) []byte {
		return randomID.ReplaceAllFunc(body, func(id []byte) []byte {
			if ids[string(id)] == "" {
				ids[string(id)] = fmt.Sprintf("%026d", len(ids)+1)
			}
			return []byte(ids[string(id)])
		})
	}
	events, messages := b.posts["standard.test"], b.posts["slack.test"]
	b.names = append(b.names, "namespace.paused", "namespace.resumed")
	var types []string
	for i, body := range events {
		var ev picket.Event
		must(t, json.Unmarshal(body, &ev))
		types = append(types, ev.Type)
		if !ev.IsNotice() {
			t.Errorf("%s was sent and is not a notice: %s", ev.Type, body)
		}
		if i < len(b.names) && strings.Fields(b.names[i])[0] != ev.Type {
			t.Fatalf("notice %d is %s, want %s: %q", i, ev.Type, b.names[i], types)
		}
	}
	if len(events) != len(b.names) || len(messages) != len(b.names) {
		t.Fatalf("%d events and %d messages were sent, want %d: %q", len(events), len(messages), len(b.names), types)
	}
	written := map[string]bool{}
	for i, name := range b.names {
		name = strings.ReplaceAll(name, " ", "-")
		event, message := settle(events[i]), settle(messages[i])
		if written[name] {
			continue // the first of its kind is the example
		}
		written[name] = true
		checkGolden(t, name+".json", event)
		checkGolden(t, name+".slack.json", message)
		if bytes.ContainsAny(event, "\x1b") || bytes.Contains(message, []byte("<!")) {
			t.Errorf("%s holds what an agent must not send: %s", name, message)
		}
	}
	for _, f := range must1(os.ReadDir(goldenDir))(t) {
		name := strings.TrimSuffix(strings.TrimSuffix(f.Name(), ".json"), ".slack")
		if strings.HasSuffix(f.Name(), ".json") && !written[name] {
			t.Errorf("%s is of no notice", f.Name())
		}
	}
	for _, kind := range picket.NoticeTypes {
		if !slices.Contains(types, kind) && !slices.Contains(otherNotices, kind) {
			t.Errorf("there is no golden file of %s", kind)
		}
	}
}

// otherNotices are of the store and of webhooks. They carry no facts of a task.
var otherNotices = []string{picket.EventStoreAdopted, picket.EventInvariantViolated, picket.EventWebhookDead,
	picket.EventWebhookGap}

func must1[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		must(t, err)
		return v
	}
}

func checkGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join(goldenDir, name)
	got = append(got, '\n')
	if *update {
		must(t, os.WriteFile(path, got, 0o644))
		return
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s differs (%v). If that is intended, run go test ./reaper/webhooks -run Golden -update.\ngot:  %s\nwant: %s",
			path, err, got, want)
	}
}
