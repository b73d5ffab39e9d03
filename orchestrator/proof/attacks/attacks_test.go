package attacks

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func TestLateReportsRewriteNothing(t *testing.T) {
	t.Run("Virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, stop := rig.Memory()
			defer stop()
			runAttacks(t, s, "default", SmallQuotas, &kit.NoPatch, LateReportAttacks...)
		})
	})
	t.Run("Real", func(t *testing.T) {
		runAttacks(t, rig.Real(t), "default", SmallQuotas, &kit.NoPatch, LateReportAttacks...)
	})
}

// The story holds without a planted bug.
func TestAuditLogAttacks(t *testing.T) {
	if v := AttackPhase(AttackAudit)(t, &kit.NoPatch); v.Found {
		t.Error(v.Said)
	}
}

// What logins promise holds without a planted bug.
func TestLoginAttacks(t *testing.T) {
	if v := AttackPhase(AttackLogins)(t, &kit.NoPatch); v.Found {
		t.Error(v.Said)
	}
}

// Run keys hold no longer and no more than the keys that made them.
func TestRunKeysAreHeldByTheirParents(t *testing.T) {
	t.Run("Virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, stop := rig.Memory()
			defer stop()
			runAttacks(t, s, "default", SmallQuotas, &kit.NoPatch, RunKeyAttacks...)
		})
	})
	t.Run("Real", func(t *testing.T) {
		runAttacks(t, rig.Real(t), "default", SmallQuotas, &kit.NoPatch,
			RunKeyAttacks...)
	})
}

func TestQuotasAreKept(t *testing.T) {
	t.Run("Virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, stop := rig.Memory()
			defer stop()
			runAttacks(t, s, "default", SmallQuotas, &kit.NoPatch, QuotaAttacks...)
		})
	})
	t.Run("Real", func(t *testing.T) {
		runAttacks(t, rig.Real(t), "default", SmallQuotas, &kit.NoPatch,
			QuotaAttacks...)
	})
}

// What is counted for a day is free again when the day is over.
func TestAQuotaOfADayEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := rig.Memory()
		defer stop()
		runAttacks(t, s, "default", SmallQuotas, &kit.NoPatch, func(h *Attacker) {
			held := h.Start()
			for i := range SmallQuotas.Answers {
				h.OK(h.Call(held, kit.SameCall(fmt.Sprint("a", i), "h", "0"), `"an answer"`))
			}
			h.wantQuotaRefusal(h.Call(held, kit.SameCall("more", "h", "0"), `""`), "kept_answers")
			for range 2 * 27 { // the clock of the store moves by a second with each look
				time.Sleep(30 * time.Minute)
				kit.OK(t, h.Tick(h.Ctx))
			}
			_, err := h.Renew(h.Ctx, held)
			if err != nil {
				held = h.next()
			}
			h.OK(h.Call(held, kit.SameCall("more", "h", "0"), `""`))
			if n := h.Raw.HLen(h.Ctx, h.Prefix+"kept:"+held.TaskID).Val(); n != 1 {
				h.Fatalf("%d slots are kept", n)
			}
		})
	})
}

// 1,000 registrations with 64 KiB each and 300 answers of 300 KB each are what
// one key and one lease once left in the store.
func TestDefaultQuotasBoundWhatOneKeyLeaves(t *testing.T) {
	rig.SkipShort(t)
	attack := func(h *Attacker) {
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
		held, answers := h.Start(), 0
		answer := `"` + strings.Repeat("x", 300_000) + `"`
		for i := range 300 {
			if err := h.Call(held, kit.SameCall(fmt.Sprint(i), fmt.Sprint("h", i), "0"), answer); err != nil {
				h.wantQuotaRefusal(err, "kept_answer_bytes")
				break
			}
			answers++
		}
		keys, err := h.Raw.Keys(h.Ctx, h.Prefix+"result:*").Result()
		h.OK(err)
		if len(keys) > 32<<20/300_000 {
			h.Fatalf("%d answers are kept of %d", len(keys), answers)
		}
	}
	t.Run("Virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, stop := rig.Memory()
			defer stop()
			runAttacks(t, s, "default", orchestrator.Quotas{}, &kit.NoPatch, attack)
		})
	})
	t.Run("Real", func(t *testing.T) {
		runAttacks(t, rig.Real(t), "default", orchestrator.Quotas{}, &kit.NoPatch,
			attack)
	})
}
