package orchestrator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
	"github.com/picket-dev/picket/orchestrator/store"
)

// Evidence is about a run: it is accepted from the run's own credential until
// 15 minutes after the lease ended and never changes the state of the task.

// RunExit notes how the process of a run ended. A class the server has set
// stays; a task that waits for this process goes on at once.
func (e *Engine) RunExit(ctx context.Context, held picket.LeaseCredential, exit picket.Exit, containment string) error {
	if !slices.Contains(picket.EvidenceClasses, exit.Class) {
		return invalidExitClass(exit.Class, picket.EvidenceClasses)
	}
	code, signal, ms := exitArgs(exit)
	if err := checkLastEvent(exit); err != nil {
		return err
	}
	return e.runHeld(ctx, held, "run_exit", string(exit.Class), code, signal, ms, containment,
		text.Tail(exit.Detail, 8<<10), lastEventArg(exit)).Err
}

// silenceReason is a nudge's reason in words.
func silenceReason(idle *float64) string {
	if idle == nil {
		return "no report, output or tool call for some time"
	}
	return "no report, output or tool call for " + time.Duration(*idle*float64(time.Second)).Round(time.Second).String()
}

// counters count things by key. The zero value is ready.
type counters[K comparable] struct {
	mu sync.Mutex
	n  map[K]int64
}

func (c *counters[K]) add(key K, n int64) {
	if n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[K]int64{}
	}
	c.n[key] += n
}

func (c *counters[K]) counts() map[K]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

// RefusedWrites counts the refused writes this process has seen, by code.
func (e *Engine) RefusedWrites() map[picket.Code]int64 { return e.refusedWrites.counts() }

// RecordRefusedWrite counts a refused write and writes it into the log, the first 20
// of a run and minute one by one. The caller has its refusal already, so a
// store that is away only costs the event.
func (e *Engine) RecordRefusedWrite(ctx context.Context, held picket.LeaseCredential, verb string,
	refusal *picket.Error) {
	e.refusedWrites.add(refusal.Code, 1)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	number := func(key string, otherwise int64) int64 {
		if n, ok := refusal.Facts[key].(int64); ok {
			return n
		}
		return otherwise
	}
	if err := e.run(ctx, "refused", held.RunID, verb, string(refusal.Code), number("presented", held.Fence),
		number("current", 0)).Err; err != nil {
		e.log.WarnContext(ctx, "write refused event", "task", held.TaskID, "run", held.RunID, "err", err)
	}
}

// RunEvidence keeps what a run has changed, until 15 minutes after its lease
// ended or somebody has decided about the task (CodeTaskClosed). Sending
// the same evidence again changes nothing. Other evidence replaces it, with an event.
func (e *Engine) RunEvidence(ctx context.Context, held picket.LeaseCredential, ev picket.Evidence) error {
	if err := ev.Check(); err != nil {
		return err
	}
	ev.RunID, ev.At, ev.Digest = "", 0, "" // the store's own
	b, err := json.Marshal(ev)
	if err != nil {
		return picket.Invalid("/diff", "Send text that is valid UTF-8.", "the evidence cannot be kept: %v", err)
	}
	if len(b) > picket.MaxPayload+1024 { // members that the caller left out
		return picket.TooLarge("/diff", len(b))
	}
	work, err := json.Marshal(summarizeEvidence(ev))
	if err != nil {
		return fmt.Errorf("encode evidence: %w", err)
	}
	return e.runHeld(ctx, held, "run_evidence", string(b), string(work), evidenceDigest(b)).Err
}

// evidenceDigest is the SHA-256 of evidence as it is kept.
func evidenceDigest(kept []byte) string {
	sum := sha256.Sum256(kept)
	return hex.EncodeToString(sum[:])
}

// Evidence lists what the runs of a task have changed, the latest run first;
// runID names one of them, empty means all. Older ones are left out where the
// answer would be larger than 4 MiB.
func (e *Engine) Evidence(ctx context.Context, taskID, runID string) ([]picket.Evidence, error) {
	refused := cmp.Or(picket.CheckID("taskId", "task", taskID), picket.CheckOptionalID("run", "run", runID))
	r := e.runChecked(ctx, refused, "evidence", taskID, runID)
	var rows []struct {
		Run  string `reply:"run"`
		Kept string `reply:"kept"` // "at json"
	}
	r.Decode(&rows)
	out := make([]picket.Evidence, len(rows))
	for i, row := range rows {
		at, body, _ := strings.Cut(row.Kept, " ")
		r.JSON(body, &out[i])
		out[i].RunID, out[i].At = row.Run, picket.Instant(store.ParseInt(at))
		out[i].Digest = evidenceDigest([]byte(body))
	}
	return out, r.Err
}
