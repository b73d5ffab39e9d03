package orchestrator_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// withWake is another process on the store, with other settings of wakes.
func (f *fixture) withWake(t *testing.T, change func(*heartbeat.Settings)) *fixture {
	t.Helper()
	wake := heartbeat.Defaults()
	change(&wake)
	e := f.OpenProcess(t, f.RigStore, orchestrator.Config{Wake: wake}).Engine("default")
	return &fixture{&kit.Fixture{Engine: e, Ctx: f.Ctx}}
}

// Each setting changes what a policy means, and with that its digest. The stored policy goes on.
func TestWakeSettingsChangeWhatPoliciesMean(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		long := "---\npreferences:\n  min_interval: 10m\n" +
			"  active_hours: [{timezone: UTC, start: \"08:00\", end: \"09:00\"}]\n---\n" + strings.Repeat("x", 2000)
		first := f.mustWritePolicy(t, "ann", long)
		for _, c := range []struct {
			name       string
			reason     picket.WakeReason
			diagnostic string
			change     func(*heartbeat.Settings)
		}{
			{"enabled", picket.WakeReasonDisabled, "", func(s *heartbeat.Settings) { s.Enabled = false }},
			{"max_body_bytes", picket.WakeReasonQuietWindow, "heartbeat_body_truncated",
				func(s *heartbeat.Settings) { s.MaxBodyBytes, s.ContextProjectionBytes = 1024, 1024 }},
			{"min_interval", picket.WakeReasonQuietWindow, "heartbeat_preference_clamped",
				func(s *heartbeat.Settings) { s.MinInterval = 15 * time.Minute }},
			{"default_interval", picket.WakeReasonQuietWindow, "",
				func(s *heartbeat.Settings) { s.DefaultInterval = time.Hour }},
			{"allow_active_hours_preferences", "", "heartbeat_preference_clamped",
				func(s *heartbeat.Settings) { s.AllowActiveHoursPreferences = false }},
		} {
			other := f.withWake(t, c.change)
			p := other.mustPolicy(t, "ann")
			if p.Digest == first.Digest || p.RevisionID != first.RevisionID || p.Body != long || !p.Valid {
				t.Errorf("%s: the policy is %s %s, valid %v", c.name, p.RevisionID, p.Digest, p.Valid)
			}
			var code string
			for _, d := range p.Diagnostics {
				code = d.Code
			}
			if code != c.diagnostic {
				t.Errorf("%s: the diagnostics are %v, want %q", c.name, p.Diagnostics, c.diagnostic)
			}
			effective := "10m0s"
			if c.name == "min_interval" {
				effective = "15m0s"
			}
			if p.MinInterval != "10m0s" || p.EffectiveMinInterval != effective {
				t.Errorf("%s: min_interval is %s, and %s counts", c.name, p.MinInterval, p.EffectiveMinInterval)
			}
			s, err := other.PolicyStatus(f.Ctx, "ann", 1_800_000_000_000) // 2027-01-15T08:00:00Z
			kit.OK(t, err)
			late, err := other.PolicyStatus(f.Ctx, "ann", 1_800_000_000_000+2*60*60*1000)
			kit.OK(t, err)
			early := picket.WakeReason("")
			if c.name == "enabled" {
				early = picket.WakeReasonDisabled
			}
			if s.Reason != early || late.Reason != c.reason || s.Digest != p.Digest {
				t.Errorf("%s: %q in and %q after the active hours", c.name, s.Reason, late.Reason)
			}
		}
	})
}

// If the settings allow no wakes, that is the reason, also for a name without a policy.
func TestDisabledWakesAreTheFirstReason(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		other := f.withWake(t, func(s *heartbeat.Settings) { s.Enabled = false })
		s, err := other.PolicyStatus(f.Ctx, "nobody", 0)
		kit.OK(t, err)
		if s.Reason != picket.WakeReasonDisabled || s.Active || s.Present {
			t.Errorf("the status is %+v", s)
		}
		other.wantWake(t, picket.WakeRequest{SessionID: newSessionID()}, picket.WakeReasonDisabled)
		f.wakeable(t)
		other.wantWake(t, picket.WakeRequest{}, picket.WakeReasonDisabled)
	})
}

// The bound of the text holds where a policy is written, and a digest of before the change is refused.
func TestWakeSettingsBoundWhatIsWritten(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		body := strings.Repeat("x", 2000)
		first := f.mustWritePolicy(t, "ann", body)
		other := f.withWake(t, func(s *heartbeat.Settings) { s.MaxBodyBytes, s.ContextProjectionBytes = 1024, 1024 })
		_, err := other.ValidatePolicy("ann", body)
		kit.Refused(t, err, picket.CodePolicyInvalid)
		write := picket.PolicyWrite{Body: body, PolicyCondition: expecting(first.Digest)}
		_, err = other.WritePolicy(f.Ctx, kit.OtherOperator, "ann", write)
		kit.Refused(t, err, picket.CodePolicyInvalid)
		write.Body = "short\n"
		_, err = other.WritePolicy(f.Ctx, kit.OtherOperator, "ann", write)
		kit.Refused(t, err, picket.CodePolicyConflict)
		write.ExpectedDigest = other.mustPolicy(t, "ann").Digest
		_, err = other.WritePolicy(f.Ctx, kit.OtherOperator, "ann", write)
		kit.OK(t, err)
		back, err := other.RollbackPolicy(f.Ctx, kit.OtherOperator, "ann", picket.PolicyRollback{
			TargetDigest: first.Digest, PolicyCondition: expecting(other.mustPolicy(t, "ann").Digest)})
		kit.OK(t, err)
		if back.Body != body {
			t.Errorf("the text has %d bytes after the rollback", len(back.Body))
		}
	})
}

// Settings out of bounds are refused before the store is opened.
func TestOpenChecksWakeSettings(t *testing.T) {
	wake := heartbeat.Defaults()
	wake.MaxBodyBytes = 1
	_, err := orchestrator.Open(t.Context(), orchestrator.Config{Sealer: rig.Sealer(), Wake: wake,
		Log: slog.New(slog.DiscardHandler)})
	kit.Refused(t, err, picket.CodeValidation)
}
