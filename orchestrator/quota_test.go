package orchestrator_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// fataler is what an attack needs of a test, or of the suite that is shown
// planted bugs.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// attacker is an agent that stores as much as it may.
type attacker struct {
	fataler
	*orchestrator.Engine
	ctx    context.Context
	raw    redis.UniversalClient
	prefix string
}

// smallQuotas are quotas that are reached soon.
var smallQuotas = orchestrator.Quotas{
	Agents:        3,
	MetadataBytes: 100,
	Subtasks:      4,
	Calls:         9,
	OpenCalls:     2,
	Answers:       4,
	AnswerBytes:   120,
	ReportBytes:   700,
	Runs:          4,
}

// runAttacks runs attacks on a namespace of its own.
func runAttacks(t fataler, s rig.Store, namespace string, quotas orchestrator.Quotas, bug *scriptPatch,
	attacks ...func(*attacker)) {
	t.Helper()
	ctx := context.Background()
	witness, err := os.MkdirTemp("", "witness")
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer os.RemoveAll(witness)
	s.Redis.ReadTimeout = 20 * time.Second
	cfg := orchestrator.Config{
		Redis:      s.Redis,
		Memory:     s.Memory,
		Namespaces: []string{namespace},
		Sealer:     rig.Sealer(),
		Quotas:     quotas,
		Witness:    witness,
		Found:      true,
		DailyLimit: worth(1e9, "1000000"),
		Log:        slog.New(slog.DiscardHandler),
	}
	orchestrator.SetClock(&cfg, fastClock())
	store, err := orchestrator.Open(ctx, cfg)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer store.Close()
	bug.apply(store, defaultBatches)
	raw := redis.NewUniversalClient(&s.Redis)
	defer raw.Close()
	for _, attack := range attacks {
		attack(&attacker{
			fataler: t,
			Engine:  store.Engine(namespace),
			ctx:     ctx,
			raw:     raw,
			prefix:  "pk:{" + namespace + "}:",
		})
	}
}

func (h *attacker) ok(err error) {
	h.Helper()
	if err != nil {
		h.Fatalf("%v", err)
	}
}

// wantQuotaRefusal wants a refusal that names the quota and says what helps.
func (h *attacker) wantQuotaRefusal(err error, quota string) {
	h.Helper()
	refusal, ok := picket.RefusalOf(err)
	if !ok || refusal.Code != picket.CodeQuota || refusal.Facts["quota"] != quota || refusal.Remedy == "" ||
		refusal.Facts["limit"] == nil {
		h.Fatalf("got %v, want that the quota of %s is exceeded", err, quota)
	}
}

func (h *attacker) start() picket.LeaseCredential {
	h.Helper()
	_, err := h.Submit(h.ctx, operator, picket.TaskSpec{Title: "a task"})
	h.ok(err)
	return h.next()
}

// next leases the task that waits.
func (h *attacker) next() picket.LeaseCredential {
	h.Helper()
	leases, err := h.Acquire(h.ctx, operator, picket.AcquireRequest{AgentID: "greedy"})
	h.ok(err)
	if len(leases) != 1 {
		h.Fatalf("%d leases", len(leases))
	}
	held, err := rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	h.ok(err)
	return held
}

func (h *attacker) register(by picket.Caller, id string, metadata int) error {
	text := fmt.Sprintf(`{"x":"%s"}`, strings.Repeat("x", max(0, metadata-8)))
	_, err := h.Register(h.ctx, by, picket.Registration{AgentID: id, Metadata: picket.RawJSON(text)})
	return err
}

func registrations(h *attacker) {
	one, two := picket.Caller{Actor: "key_one"}, picket.Caller{Actor: "key_two"}
	for i := range smallQuotas.Agents {
		h.ok(h.register(one, fmt.Sprint("a", i), 10))
	}
	h.wantQuotaRefusal(h.register(one, "more", 10), "agents")
	_, err := h.Deregister(h.ctx, one, "a0", nil)
	h.ok(err)
	h.wantQuotaRefusal(h.register(one, "more", 10), "agents") // the record is kept
	h.ok(h.register(one, "a0", 60))                           // an id of before is not a further record
	_, err = h.Deregister(h.ctx, one, "a0", nil)
	h.ok(err)
	h.wantQuotaRefusal(h.register(one, "a0", 81), "metadata_bytes")
	h.ok(h.register(one, "a0", 80))
	h.ok(h.register(two, "b0", 60)) // another key has a quota of its own
	h.wantQuotaRefusal(h.register(two, "b1", 41), "metadata_bytes")
	h.ok(h.register(two, "b1", 40))
	// What retention deletes may be registered again.
	for _, id := range []string{"a0", "a1", "a2"} {
		_, err = h.Deregister(h.ctx, one, id, nil)
		h.ok(err)
	}
	_, err = h.ApplyRetention(h.ctx, picket.Retention{Tasks: -time.Second, Events: time.Hour, MaxEvents: 1e6}, 100)
	h.ok(err)
	if n, err := h.raw.Exists(h.ctx, h.prefix+"kept-by:key_one").Result(); err != nil || n != 0 {
		h.Fatalf("the counters of a key without agents: %d, %v", n, err)
	}
	h.ok(h.register(one, "more", 100))
	for _, id := range []string{"more", "b0", "b1"} {
		_, err = h.Deregister(h.ctx, operatorCaller, id, nil)
		h.ok(err)
	}
}

var operatorCaller = picket.Caller{Actor: "key_test", Operator: true}

func (h *attacker) call(held picket.LeaseCredential, c picket.CallRequest, answer string) error {
	h.Helper()
	r, err := h.Reserve(h.ctx, held, c)
	if err != nil || r.Replay != nil {
		return err
	}
	s := doneSettlement(r, "0")
	s.Result = picket.RawJSON(answer)
	_, err = h.Settle(h.ctx, s)
	h.ok(err)
	return nil
}

func keptAnswers(h *attacker) {
	held := h.start()
	for i := range smallQuotas.Answers {
		h.ok(h.call(held, sameCall(fmt.Sprint("a", i), "h", "0"), `"an answer"`))
	}
	h.wantQuotaRefusal(h.call(held, sameCall("more", "h", "0"), `""`), "kept_answers")
	h.ok(h.call(held, sameCall("a0", "h", "0"), `""`)) // the answer of before
	h.ok(h.call(held, paidCall("0"), `""`))            // without a key nothing is kept
	h.end(held)

	held = h.start() // another task has a quota of its own
	h.ok(h.call(held, sameCall("b0", "h", "0"), `"`+strings.Repeat("x", 118)+`"`))
	h.wantQuotaRefusal(h.call(held, sameCall("b1", "h", "0"), `""`), "kept_answer_bytes")
	h.end(held)

	held = h.start()
	h.ok(h.call(held, sameCall("c0", "h", "0"), `"`+strings.Repeat("x", 100)+`"`))
	h.ok(h.call(held, sameCall("c1", "h", "0"), `"`+strings.Repeat("y", 100)+`"`)) // was made, and is not kept
	if err := h.call(held, sameCall("c1", "h", "0"), `""`); picket.CodeOf(err) != picket.CodeStateConflict {
		h.Fatalf("an answer that does not fit: %v", err)
	}
	h.end(held)
}

func callsOfATree(h *attacker) {
	held := h.start()
	d, err := h.Delegate(h.ctx, held, "", picket.Subtask{Title: "part"})
	h.ok(err)
	part := h.next()
	if part.TaskID != d.TaskID {
		h.Fatalf("leased %s", part.TaskID)
	}
	var open []picket.Reservation
	for range smallQuotas.OpenCalls {
		r, err := h.Reserve(h.ctx, part, paidCall("0"))
		h.ok(err)
		open = append(open, r)
	}
	_, err = h.Reserve(h.ctx, part, paidCall("0"))
	h.wantQuotaRefusal(err, "open_calls")
	for _, r := range open {
		_, err := h.Settle(h.ctx, doneSettlement(r, "0"))
		h.ok(err)
	}
	for range smallQuotas.Calls - smallQuotas.OpenCalls {
		h.ok(h.call(held, paidCall("0"), `""`))
	}
	for _, who := range []picket.LeaseCredential{held, part} { // of all tasks of the tree together
		_, err = h.Reserve(h.ctx, who, paidCall("0"))
		h.wantQuotaRefusal(err, "calls")
	}
	h.end(part)
	h.end(held)
}

func subtasks(h *attacker) {
	root := h.start()
	one, err := h.Delegate(h.ctx, root, "", picket.Subtask{Title: "one"})
	h.ok(err)
	part := h.next()
	for i := range smallQuotas.Subtasks - 1 {
		_, err := h.Delegate(h.ctx, part, fmt.Sprint(i), picket.Subtask{Title: "below"})
		h.ok(err)
	}
	for _, who := range []picket.LeaseCredential{root, part} {
		_, err := h.Delegate(h.ctx, who, "", picket.Subtask{Title: "more"})
		h.wantQuotaRefusal(err, "subtasks")
	}
	_, err = h.Delegate(h.ctx, part, "0", picket.Subtask{Title: "below"}) // the same again
	h.ok(err)
	_, err = h.Complete(h.ctx, part, picket.Completion{Output: picket.RawJSON(`"x"`), Children: picket.ChildrenCancel})
	h.ok(err)
	_, err = h.ReviewSubtask(h.ctx, root, "",
		picket.SubtaskReview{TaskID: one.TaskID, Decision: "reject", Note: "again"})
	h.wantQuotaRefusal(err, "subtasks") // a repair is one more
	h.end(root)
}

func reports(h *attacker) {
	held := h.start()
	for i := range 20 {
		_, err := h.Report(h.ctx, held, "", picket.Progress{Summary: fmt.Sprint(i, strings.Repeat("x", 100))})
		h.ok(err)
	}
	all, err := h.raw.LRange(h.ctx, h.prefix+"reports:"+held.TaskID, 0, -1).Result()
	h.ok(err)
	if size := len(strings.Join(all, "")); size > smallQuotas.ReportBytes || size < smallQuotas.ReportBytes/2 {
		h.Fatalf("%d reports with %d bytes are kept", len(all), size)
	}
	_, err = h.Report(h.ctx, held, "",
		picket.Progress{Summary: "the last" + strings.Repeat("x", smallQuotas.ReportBytes)})
	h.ok(err)
	kept, err := h.Reports(h.ctx, held.TaskID)
	h.ok(err)
	if len(kept) != 1 || !strings.HasPrefix(kept[0].Summary, "the last") || kept[0].Seq != 21 {
		h.Fatalf("%d reports are kept", len(kept))
	}
	h.end(held)
}

// end leaves nothing that waits for the next attack.
func (h *attacker) end(held picket.LeaseCredential) {
	h.Helper()
	_, err := h.Cancel(h.ctx, operator, held.TaskID, "enough")
	h.ok(err)
}

var quotaAttacks = []func(*attacker){registrations, olderRecords, keptAnswers, callsOfATree, subtasks, reports,
	runsOfATask, runsThatFail, runsThatAsk}

func TestQuotasAreKept(t *testing.T) {
	t.Run("Virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, stop := rig.Memory()
			defer stop()
			runAttacks(t, s, "default", smallQuotas, &noPatch, quotaAttacks...)
		})
	})
	t.Run("Real", func(t *testing.T) { runAttacks(t, rig.Real(t), "default", smallQuotas, &noPatch, quotaAttacks...) })
}

// What is counted for a day is free again when the day is over.
func TestAQuotaOfADayEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := rig.Memory()
		defer stop()
		runAttacks(t, s, "default", smallQuotas, &noPatch, func(h *attacker) {
			held := h.start()
			for i := range smallQuotas.Answers {
				h.ok(h.call(held, sameCall(fmt.Sprint("a", i), "h", "0"), `"an answer"`))
			}
			h.wantQuotaRefusal(h.call(held, sameCall("more", "h", "0"), `""`), "kept_answers")
			for range 2 * 27 { // the clock of the store moves by a second with each look
				time.Sleep(30 * time.Minute)
				ok(t, h.Tick(h.ctx))
			}
			_, err := h.Renew(h.ctx, held)
			if err != nil {
				held = h.next()
			}
			h.ok(h.call(held, sameCall("more", "h", "0"), `""`))
			if n := h.raw.HLen(h.ctx, h.prefix+"kept:"+held.TaskID).Val(); n != 1 {
				h.Fatalf("%d slots are kept", n)
			}
		})
	})
}

// 1,000 registrations with 64 KiB each and 300 answers of 300 KB each are what
// one key and one lease once left in the store.
func TestDefaultQuotasBoundWhatOneKeyLeaves(t *testing.T) {
	rig.SkipShort(t)
	attack := func(h *attacker) {
		before := 0
		for i := range 1000 {
			if err := h.register(picket.Caller{Actor: "key_one"}, fmt.Sprint("a", i), picket.MaxMetadata); err != nil {
				h.wantQuotaRefusal(err, "metadata_bytes")
				break
			}
			before++
		}
		if before*picket.MaxMetadata > 16<<20 {
			h.Fatalf("%d registrations were taken", before)
		}
		held, answers := h.start(), 0
		answer := `"` + strings.Repeat("x", 300_000) + `"`
		for i := range 300 {
			if err := h.call(held, sameCall(fmt.Sprint(i), "h", "0"), answer); err != nil {
				h.wantQuotaRefusal(err, "kept_answer_bytes")
				break
			}
			answers++
		}
		keys, err := h.raw.Keys(h.ctx, h.prefix+"result:*").Result()
		h.ok(err)
		if len(keys) > 32<<20/300_000 {
			h.Fatalf("%d answers are kept of %d", len(keys), answers)
		}
	}
	t.Run("Virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, stop := rig.Memory()
			defer stop()
			runAttacks(t, s, "default", orchestrator.Quotas{}, &noPatch, attack)
		})
	})
	t.Run("Real", func(t *testing.T) { runAttacks(t, rig.Real(t), "default", orchestrator.Quotas{}, &noPatch, attack) })
}
