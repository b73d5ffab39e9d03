package attacks

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Fataler is what an attack needs of a test, or of the suite that is shown
// planted bugs.
type Fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Attacker is an agent that stores as much as it may.
type Attacker struct {
	Fataler
	*orchestrator.Engine
	Ctx    context.Context
	Raw    redis.UniversalClient
	Prefix string
}

// SmallQuotas are quotas that are reached soon.
var SmallQuotas = orchestrator.Quotas{
	Agents:        3,
	MetadataBytes: 100,
	Subtasks:      4,
	Calls:         9,
	OpenCalls:     2,
	Answers:       4,
	AnswerBytes:   120,
	ReportBytes:   700,
	Reports:       4,
	LogBytes:      picket.MinLogBytes,
	Runs:          4,
	BundleBytes:   300,
	BundlesBytes:  700,
}

// runAttacks runs attacks on a namespace of its own.
func runAttacks(t Fataler, s rig.Store, namespace string, quotas orchestrator.Quotas, bug *kit.ScriptPatch,
	attacks ...func(*Attacker)) {
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
		DailyLimit: kit.Worth(1e9, "1000000"),
		Log:        slog.New(slog.DiscardHandler),
	}
	cfg.Now = kit.FastClock()
	store, err := orchestrator.Open(ctx, cfg)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer store.Close()
	bug.Apply(store, kit.DefaultBatches)
	raw := rig.Hashes(redis.NewUniversalClient(&s.Redis))
	defer raw.Close()
	for _, attack := range attacks {
		attack(&Attacker{
			Fataler: t,
			Engine:  store.Engine(namespace),
			Ctx:     ctx,
			Raw:     raw,
			Prefix:  "pk:{" + namespace + "}:",
		})
	}
}

func (h *Attacker) OK(err error) {
	h.Helper()
	if err != nil {
		h.Fatalf("%v", err)
	}
}

// wantQuotaRefusal wants a refusal that names the quota and says what helps.
func (h *Attacker) wantQuotaRefusal(err error, quota string) {
	h.Helper()
	refusal, ok := picket.RefusalOf(err)
	if !ok || refusal.Code != picket.CodeQuota || refusal.Facts["quota"] != quota || refusal.Remedy == "" ||
		refusal.Facts["limit"] == nil {
		h.Fatalf("got %v, want that the quota of %s is exceeded", err, quota)
	}
}

func (h *Attacker) Start() picket.LeaseCredential {
	h.Helper()
	_, err := h.Submit(h.Ctx, kit.Operator, picket.TaskSpec{Title: "a task"})
	h.OK(err)
	return h.next()
}

// next leases the task that waits.
func (h *Attacker) next() picket.LeaseCredential {
	h.Helper()
	leases, err := h.Acquire(h.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "greedy"})
	h.OK(err)
	if len(leases) != 1 {
		h.Fatalf("%d leases", len(leases))
	}
	held, err := rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	h.OK(err)
	return held
}

func (h *Attacker) register(by picket.Caller, id string, metadata int) error {
	text := fmt.Sprintf(`{"x":"%s"}`, strings.Repeat("x", max(0, metadata-8)))
	_, err := h.Register(h.Ctx, by, picket.Registration{AgentID: id, Metadata: picket.RawJSON(text)})
	return err
}

func registrations(h *Attacker) {
	one, two := picket.Caller{Actor: "key_one"}, picket.Caller{Actor: "key_two"}
	for i := range SmallQuotas.Agents {
		h.OK(h.register(one, fmt.Sprint("a", i), 10))
	}
	h.wantQuotaRefusal(h.register(one, "more", 10), "agents")
	_, err := h.Deregister(h.Ctx, one, "a0", nil)
	h.OK(err)
	h.wantQuotaRefusal(h.register(one, "more", 10), "agents") // the record is kept
	h.OK(h.register(one, "a0", 60))                           // an id of before is not a further record
	_, err = h.Deregister(h.Ctx, one, "a0", nil)
	h.OK(err)
	h.wantQuotaRefusal(h.register(one, "a0", 81), "metadata_bytes")
	h.OK(h.register(one, "a0", 80))
	h.OK(h.register(two, "b0", 60)) // another key has a quota of its own
	h.wantQuotaRefusal(h.register(two, "b1", 41), "metadata_bytes")
	h.OK(h.register(two, "b1", 40))
	// What retention deletes may be registered again.
	for _, id := range []string{"a0", "a1", "a2"} {
		_, err = h.Deregister(h.Ctx, one, id, nil)
		h.OK(err)
	}
	_, err = h.ApplyRetention(h.Ctx, picket.Retention{Tasks: -time.Second, Events: time.Hour, MaxEvents: 1e6}, 100)
	h.OK(err)
	if n, err := h.Raw.Exists(h.Ctx, h.Prefix+"kept-by:key_one").Result(); err != nil || n != 0 {
		h.Fatalf("the counters of a key without agents: %d, %v", n, err)
	}
	h.OK(h.register(one, "more", 100))
	for _, id := range []string{"more", "b0", "b1"} {
		_, err = h.Deregister(h.Ctx, operatorCaller, id, nil)
		h.OK(err)
	}
}

var operatorCaller = picket.Caller{Actor: "key_test", Operator: true}

func (h *Attacker) Call(held picket.LeaseCredential, c picket.CallRequest, answer string) error {
	h.Helper()
	r, err := h.Reserve(h.Ctx, held, c)
	if err != nil || r.Replay != nil {
		return err
	}
	s := kit.DoneSettlement(r, "0")
	s.Result = picket.RawJSON(answer)
	_, err = h.Settle(h.Ctx, s)
	h.OK(err)
	return nil
}

func keptAnswers(h *Attacker) {
	held := h.Start()
	for i := range SmallQuotas.Answers {
		h.OK(h.Call(held, kit.SameCall(fmt.Sprint("a", i), "h", "0"), `"an answer"`))
	}
	h.wantQuotaRefusal(h.Call(held, kit.SameCall("more", "h", "0"), `""`), "kept_answers")
	h.OK(h.Call(held, kit.SameCall("a0", "h", "0"), `""`)) // the answer of before
	h.OK(h.Call(held, kit.PaidCall("0"), `""`))            // without a key nothing is kept
	h.End(held)

	held = h.Start() // another task has a quota of its own
	h.OK(h.Call(held, kit.SameCall("b0", "h", "0"), `"`+strings.Repeat("x", 118)+`"`))
	h.wantQuotaRefusal(h.Call(held, kit.SameCall("b1", "h", "0"), `""`), "kept_answer_bytes")
	h.End(held)

	held = h.Start()
	h.OK(h.Call(held, kit.SameCall("c0", "h", "0"), `"`+strings.Repeat("x", 100)+`"`))
	h.OK(h.Call(held, kit.SameCall("c1", "h", "0"), `"`+strings.Repeat("y", 100)+`"`)) // was made, and is not kept
	if err := h.Call(held, kit.SameCall("c1", "h", "0"), `""`); picket.CodeOf(err) != picket.CodeStateConflict {
		h.Fatalf("an answer that does not fit: %v", err)
	}
	h.End(held)
}

func callsOfATree(h *Attacker) {
	held := h.Start()
	d, err := h.Delegate(h.Ctx, held, "", picket.Subtask{Title: "part"})
	h.OK(err)
	part := h.next()
	if part.TaskID != d.TaskID {
		h.Fatalf("leased %s", part.TaskID)
	}
	var open []picket.Reservation
	for range SmallQuotas.OpenCalls {
		r, err := h.Reserve(h.Ctx, part, kit.PaidCall("0"))
		h.OK(err)
		open = append(open, r)
	}
	_, err = h.Reserve(h.Ctx, part, kit.PaidCall("0"))
	h.wantQuotaRefusal(err, "open_calls")
	for _, r := range open {
		_, err := h.Settle(h.Ctx, kit.DoneSettlement(r, "0"))
		h.OK(err)
	}
	for range SmallQuotas.Calls - SmallQuotas.OpenCalls {
		h.OK(h.Call(held, kit.PaidCall("0"), `""`))
	}
	for _, who := range []picket.LeaseCredential{held, part} { // of all tasks of the tree together
		_, err = h.Reserve(h.Ctx, who, kit.PaidCall("0"))
		h.wantQuotaRefusal(err, "calls")
	}
	h.End(part)
	h.End(held)
}

func subtasks(h *Attacker) {
	root := h.Start()
	one, err := h.Delegate(h.Ctx, root, "", picket.Subtask{Title: "one"})
	h.OK(err)
	part := h.next()
	for i := range SmallQuotas.Subtasks - 1 {
		_, err := h.Delegate(h.Ctx, part, fmt.Sprint(i), picket.Subtask{Title: "below"})
		h.OK(err)
	}
	for _, who := range []picket.LeaseCredential{root, part} {
		_, err := h.Delegate(h.Ctx, who, "", picket.Subtask{Title: "more"})
		h.wantQuotaRefusal(err, "subtasks")
	}
	_, err = h.Delegate(h.Ctx, part, "0", picket.Subtask{Title: "below"}) // the same again
	h.OK(err)
	_, err = h.Complete(h.Ctx, part, picket.Completion{Output: picket.RawJSON(`"x"`), Children: picket.ChildrenCancel})
	h.OK(err)
	_, err = h.ReviewSubtask(h.Ctx, root, "",
		picket.SubtaskReview{TaskID: one.TaskID, Decision: "reject", Note: "again"})
	h.wantQuotaRefusal(err, "subtasks") // a repair is one more
	h.End(root)
}

func reports(h *Attacker) {
	held := h.Start()
	for i := range 20 {
		_, err := h.Report(h.Ctx, held, "", picket.Progress{Summary: fmt.Sprint(i, strings.Repeat("x", 100))})
		h.OK(err)
	}
	all, err := h.Raw.LRange(h.Ctx, h.Prefix+"reports:"+held.TaskID, 0, -1).Result()
	h.OK(err)
	if size := len(strings.Join(all, "")); size > SmallQuotas.ReportBytes || size < SmallQuotas.ReportBytes/2 {
		h.Fatalf("%d reports with %d bytes are kept", len(all), size)
	}
	_, err = h.Report(h.Ctx, held, "",
		picket.Progress{Summary: "the last" + strings.Repeat("x", SmallQuotas.ReportBytes)})
	h.OK(err)
	kept, err := h.Reports(h.Ctx, held.TaskID)
	h.OK(err)
	if len(kept) != 1 || !strings.HasPrefix(kept[0].Summary, "the last") || kept[0].Seq != 21 {
		h.Fatalf("%d reports are kept", len(kept))
	}
	h.End(held)
}

// manyReports are small, so their number is what bounds them.
func manyReports(h *Attacker) {
	held := h.Start()
	for i := range 20 {
		_, err := h.Report(h.Ctx, held, "", picket.Progress{Summary: fmt.Sprint(i)})
		h.OK(err)
	}
	kept, err := h.Raw.LLen(h.Ctx, h.Prefix+"reports:"+held.TaskID).Result()
	h.OK(err)
	if kept != int64(SmallQuotas.Reports) {
		h.Fatalf("%d reports are kept, want %d", kept, SmallQuotas.Reports)
	}
	h.End(held)
}

func output(h *Attacker) {
	held := h.Start()
	piece := []byte(strings.Repeat("x", 20_000))
	for i := range 20 {
		_, err := h.RunLog(h.Ctx, held, picket.LogWrite{Stream: "stdout", Offset: int64(i * len(piece)), Data: piece})
		h.OK(err)
	}
	all, err := h.Raw.LRange(h.Ctx, h.Prefix+"log:"+held.RunID+":stdout", 0, -1).Result()
	h.OK(err)
	if size := len(strings.Join(all, "")); size < SmallQuotas.LogBytes || size >= SmallQuotas.LogBytes+len(piece) {
		h.Fatalf("%d bytes of output are kept", size)
	}
	got, err := h.Log(h.Ctx, held.TaskID, "", "stdout", 0, 1<<20)
	h.OK(err)
	if got.Next != int64(20*len(piece)) || got.Offset == 0 {
		h.Fatalf("the log has bytes %d to %d", got.Offset, got.Next)
	}
	h.End(held)
}

// End leaves nothing that waits for the next attack.
func (h *Attacker) End(held picket.LeaseCredential) {
	h.Helper()
	_, err := h.Cancel(h.Ctx, kit.Operator, held.TaskID, "enough")
	h.OK(err)
}

var QuotaAttacks = []func(*Attacker){registrations, olderRecords, keptAnswers, callsOfATree, subtasks, reports,
	manyReports, output, bundles, bundlesOfATree, runsOfATask, runsThatFail, runsThatAsk}
