package orchestrator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// RunEvidence keeps what a run has changed, until 15 minutes after its lease
// ended or somebody has decided about the task (CodeTaskClosed). Sending
// the same evidence again changes nothing. Other evidence replaces it, with an event.
func (e *Engine) RunEvidence(ctx context.Context, held picket.LeaseCredential, ev picket.Evidence) error {
	if err := ev.Check(); err != nil {
		return err
	}
	ev.RunID, ev.At, ev.Digest = "", 0, "" // the store's own
	b, err := jsonv2.Marshal(ev)
	if err != nil {
		return picket.Invalid("/diff", "Send text that is valid UTF-8.", "the evidence cannot be kept: %v", err)
	}
	if len(b) > picket.MaxPayload+1024 { // members that the caller left out
		return picket.TooLarge("/diff", len(b))
	}
	work, err := jsonv2.Marshal(summarizeEvidence(ev))
	if err != nil {
		return fmt.Errorf("encode evidence: %w", err)
	}
	_, err = e.runHeld(ctx, held, "run_evidence", string(b), string(work), evidenceDigest(b))
	return err
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
	if err := picket.CheckID("taskId", "task", taskID); err != nil {
		return nil, err
	}
	if runID != "" {
		if err := picket.CheckID("run", "run", runID); err != nil {
			return nil, err
		}
	}
	got, err := e.run(ctx, "evidence", taskID, runID)
	if err != nil {
		return nil, err
	}
	r := &reply{script: "evidence"}
	out := []picket.Evidence{}
	for _, row := range r.list(got) {
		ev, err := decodeEvidence(r, r.list(row))
		if err != nil {
			return nil, err
		}
		out = append(out, ev)
	}
	return out, r.err
}

func decodeEvidence(r *reply, row []any) (ev picket.Evidence, err error) {
	at, body, _ := strings.Cut(r.text(r.at(row, 1)), " ")
	if err := jsonv2.Unmarshal([]byte(body), &ev); err != nil {
		return ev, fmt.Errorf("decode evidence: %w", err)
	}
	ev.RunID, ev.At, ev.Digest = r.text(r.at(row, 0)), picket.Instant(parseInt(at)), evidenceDigest([]byte(body))
	return ev, nil
}
