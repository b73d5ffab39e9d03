package orchestrator_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// mustWritePolicy writes a policy in place of the one that is there.
func (f *fixture) mustWritePolicy(t *testing.T, name, body string) picket.WakePolicy {
	t.Helper()
	p, err := f.WritePolicy(f.Ctx, kit.OtherOperator, name, picket.PolicyWrite{Body: body,
		PolicyCondition: picket.PolicyCondition{ExpectedDigest: f.mustPolicy(t, name).Digest}})
	kit.OK(t, err)
	return p
}

func (f *fixture) mustPolicy(t *testing.T, name string) picket.WakePolicy {
	t.Helper()
	p, err := f.WakePolicy(f.Ctx, name)
	kit.OK(t, err)
	return p
}

func (f *fixture) mustPolicyHistory(t *testing.T, name string) []picket.PolicyRevision {
	t.Helper()
	page, err := f.PolicyHistory(f.Ctx, name, picket.PolicyHistoryQuery{Limit: picket.MaxPolicyRevisions})
	kit.OK(t, err)
	return page.Revisions
}

// expecting is the condition of a change.
func expecting(digest string) picket.PolicyCondition {
	return picket.PolicyCondition{ExpectedDigest: digest}
}

// A key owns the agent names under which agents take part that it has registered, and no others.
func TestAKeyOwnsTheNamesOfItsAgents(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		register := func(by picket.Caller, id, metadata string) {
			t.Helper()
			_, err := f.Register(f.Ctx, by, picket.Registration{AgentID: id, Metadata: picket.RawJSON(metadata)})
			kit.OK(t, err)
		}
		owns := func(by picket.Caller, name string, want bool) {
			t.Helper()
			if err := f.CheckOwnsName(f.Ctx, by.Actor, name); want {
				kit.OK(t, err)
			} else {
				kit.Refused(t, err, picket.CodeForbidden)
			}
		}
		owner, other := kit.AgentOwner, picket.Caller{Actor: "key_other"}
		owns(owner, "ann", false)
		register(owner, "a1", `{"agent_name":"ann"}`)
		register(owner, "a2", `{"agent_name":7}`)
		register(other, "b1", `{"agent_name":"bob"}`)
		owns(owner, "ann", true)
		owns(owner, "bob", false)
		owns(other, "ann", false)
		owns(other, "bob", true)
		kit.Refused(t, f.CheckOwnsName(f.Ctx, owner.Actor, "a b"), picket.CodeValidation)
		_, err := f.Deregister(f.Ctx, owner, "a1", nil)
		kit.OK(t, err)
		owns(owner, "ann", false)
		register(owner, "a1", `{"agent_name":"cat"}`)
		owns(owner, "ann", false)
		owns(owner, "cat", true)
		f.JumpStoreTime(t, 290*time.Second)
		owns(owner, "cat", true) // it is silent, and not dead yet
		f.JumpStoreTime(t, 20*time.Second)
		owns(owner, "cat", false) // it is dead, and nobody has written that down
		_, err = f.JudgeAgents(f.Ctx, 10)
		kit.OK(t, err)
		if n := f.Raw.Exists(f.Ctx, "pk:{default}:named-agents:cat:"+owner.Actor).Val(); n != 0 {
			t.Error("an agent that is gone is listed under its name")
		}
	})
}

// A policy is made, replaced, deleted and restored, each by the digest of the one that is there. Its
// bytes are kept as they are.
func TestAPolicyIsChangedByItsDigest(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		const one, two = "---\nversion: 1\nsummary: first\n---\r\nLook at your inbox.\r\n", "Look at your tasks.\n"
		if p := f.mustPolicy(t, "ann"); p.Present || p.Digest != "" {
			t.Errorf("a name without a policy has %+v", p)
		}
		write := func(body, digest string) (picket.WakePolicy, error) {
			return f.WritePolicy(f.Ctx, kit.OtherOperator, "ann",
				picket.PolicyWrite{Body: body, PolicyCondition: expecting(digest)})
		}
		_, err := write(one, "sha256:"+strings.Repeat("0", 64))
		kit.Refused(t, err, picket.CodePolicyConflict)
		first, err := write(one, "")
		kit.OK(t, err)
		if !first.Valid || !first.Enabled || first.Summary != "first" || first.Body != one {
			t.Errorf("written was %+v", first)
		}
		_, err = write(two, "")
		kit.Refused(t, err, picket.CodePolicyConflict)
		second, err := write(two, first.Digest)
		kit.OK(t, err)
		if got := f.mustPolicy(t, "ann"); got.Digest != second.Digest || got.Body != two {
			t.Errorf("read was %+v", got)
		}
		_, err = f.DeletePolicy(f.Ctx, kit.OtherOperator, "ann", expecting(first.Digest))
		kit.Refused(t, err, picket.CodePolicyConflict)
		gone, err := f.DeletePolicy(f.Ctx, kit.OtherOperator, "ann", expecting(second.Digest))
		kit.OK(t, err)
		if gone.Present || f.mustPolicy(t, "ann").Present {
			t.Error("a deleted policy is still there")
		}
		_, err = f.DeletePolicy(f.Ctx, kit.OtherOperator, "ann", expecting(""))
		kit.Refused(t, err, picket.CodeNoPolicy)
		back, err := f.RollbackPolicy(f.Ctx, kit.OtherOperator, "ann",
			picket.PolicyRollback{TargetDigest: first.Digest})
		kit.OK(t, err)
		if back.Body != one || back.Digest != first.Digest || back.RevisionID == first.RevisionID {
			t.Errorf("restored was %+v", back)
		}
		var actions []string
		for _, r := range f.mustPolicyHistory(t, "ann") {
			actions = append(actions, r.Action)
			if r.Current != (r.RevisionID == back.RevisionID) {
				t.Errorf("revision %s: current is %v", r.RevisionID, r.Current)
			}
		}
		if want := []string{"rollback", "delete", "write", "write"}; !slices.Equal(actions, want) {
			t.Errorf("the history has %q, want %q", actions, want)
		}
	})
}

// The same request again has its effect once, although the policy is another one by then.
func TestARepeatedPolicyChangeIsMadeOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		by := kit.Idempotent("p")
		w := picket.PolicyWrite{Body: "one\n"}
		first, err := f.WritePolicy(f.Ctx, by, "ann", w)
		kit.OK(t, err)
		f.mustWritePolicy(t, "ann", "two\n")
		again, err := f.WritePolicy(f.Ctx, by, "ann", w)
		kit.OK(t, err)
		if again.RevisionID != first.RevisionID || f.mustPolicy(t, "ann").Body != "two\n" {
			t.Errorf("the repeated request made %s", again.RevisionID)
		}
		by.Idempotency.Body = strings.Repeat("c", 64)
		_, err = f.WritePolicy(f.Ctx, by, "ann", picket.PolicyWrite{Body: "three\n"})
		kit.Refused(t, err, picket.CodeIdempotencyConflict)
	})
}

// Of writers that have read the same policy one wins, and the others are told.
func TestOneOfManyPolicyWritersWins(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		from := f.mustWritePolicy(t, "ann", "from\n")
		const writers = 8
		errs := make([]error, writers)
		var all sync.WaitGroup
		for n := range writers {
			all.Go(func() {
				_, errs[n] = f.WritePolicy(f.Ctx, kit.OtherOperator, "ann",
					picket.PolicyWrite{Body: fmt.Sprintf("writer %d\n", n), PolicyCondition: expecting(from.Digest)})
			})
		}
		all.Wait()
		won := 0
		for n, err := range errs {
			if err != nil {
				kit.Refused(t, err, picket.CodePolicyConflict)
				continue
			}
			won++
			if body := f.mustPolicy(t, "ann").Body; body != fmt.Sprintf("writer %d\n", n) {
				t.Errorf("writer %d won, and the policy is %q", n, body)
			}
		}
		if won != 1 || len(f.mustPolicyHistory(t, "ann")) != 2 {
			t.Errorf("%d writers won", won)
		}
	})
}

// A revision belongs to one name, and a rollback names one that is kept.
func TestARollbackNeedsARevisionOfTheName(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		other := f.mustWritePolicy(t, "bob", "of bob\n")
		f.mustWritePolicy(t, "ann", "of ann\n")
		roll := func(r picket.PolicyRollback) error {
			r.ExpectedDigest = f.mustPolicy(t, "ann").Digest
			_, err := f.RollbackPolicy(f.Ctx, kit.OtherOperator, "ann", r)
			return err
		}
		kit.Refused(t, roll(picket.PolicyRollback{RevisionID: other.RevisionID}), picket.CodeRevisionNotFound)
		kit.Refused(t, roll(picket.PolicyRollback{TargetDigest: other.Digest}), picket.CodeRevisionNotFound)
		kit.Refused(t, roll(picket.PolicyRollback{RevisionID: "revision_" + ulid.Make().String()}),
			picket.CodeRevisionNotFound)
		kit.Refused(t, roll(picket.PolicyRollback{}), picket.CodeValidation)
		gone, err := f.DeletePolicy(f.Ctx, kit.OtherOperator, "ann", expecting(f.mustPolicy(t, "ann").Digest))
		kit.OK(t, err)
		kit.Refused(t, roll(picket.PolicyRollback{RevisionID: gone.RevisionID}), picket.CodeValidation)
		if f.mustPolicy(t, "ann").Present {
			t.Error("a deletion was restored as an empty policy")
		}
	})
}

// Revisions and names are bounded. A name that has no policy any more makes room.
func TestPoliciesAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for n := range picket.MaxPolicyRevisions + 2 {
			f.mustWritePolicy(t, "ann", fmt.Sprintf("revision %d\n", n))
		}
		kept := f.mustPolicyHistory(t, "ann")
		if len(kept) != picket.MaxPolicyRevisions || kept[len(kept)-1].Body != "revision 2\n" {
			t.Errorf("%d revisions are kept, the oldest is %q", len(kept), kept[len(kept)-1].Body)
		}
		if n := len(f.Raw.Keys(f.Ctx, "pk:{default}:policy-revision:*").Val()); n != picket.MaxPolicyRevisions {
			t.Errorf("the store has %d revisions", n)
		}
		const most = 200
		for n := 1; n < most; n++ {
			f.mustWritePolicy(t, fmt.Sprintf("name-%d", n), "x\n")
		}
		_, err := f.WritePolicy(f.Ctx, kit.OtherOperator, "more", picket.PolicyWrite{Body: "x\n"})
		kit.Refused(t, err, picket.CodeStateConflict)
		for _, name := range []string{"ann", "name-1"} {
			_, err = f.DeletePolicy(f.Ctx, kit.OtherOperator, name, expecting(f.mustPolicy(t, name).Digest))
			kit.OK(t, err)
			f.JumpStoreTime(t, time.Second)
		}
		f.mustWritePolicy(t, "ann", "used again\n")
		f.mustWritePolicy(t, "more", "x\n")
		if n := len(f.mustPolicyHistory(t, "ann")); n != picket.MaxPolicyRevisions {
			t.Errorf("the name that is used has %d revisions", n)
		}
		if n := len(f.mustPolicyHistory(t, "name-1")); n != 0 {
			t.Errorf("the name that made room has %d revisions", n)
		}
	})
}

// A page of the history has no more bytes than a reply takes, and the pages have every revision.
func TestPagesOfAPolicyHistoryAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		large := strings.Repeat("x", 2<<20) // more than a policy has, so that few of them fill a reply
		for n := range 5 {
			p := f.mustWritePolicy(t, "ann", fmt.Sprintf("%d\n", n))
			key := "pk:{default}:policy-revision:" + p.RevisionID
			kit.OK(t, f.Raw.HSet(f.Ctx, key, "body", fmt.Sprint(n, large)).Err())
		}
		var seen []string
		q := picket.PolicyHistoryQuery{Limit: 4}
		for {
			page, err := f.PolicyHistory(f.Ctx, "ann", q)
			kit.OK(t, err)
			if len(page.Revisions) > 2 {
				t.Errorf("a page has %d revisions of 2 MiB", len(page.Revisions))
			}
			for _, r := range page.Revisions {
				seen = append(seen, r.Body[:1])
			}
			if q.Cursor = page.Cursor; q.Cursor == 0 {
				break
			}
		}
		if got := strings.Join(seen, ""); got != "43210" {
			t.Errorf("the pages have %s", got)
		}
	})
}

// An invalid text is not stored. The refusal names the line.
func TestAnInvalidPolicyIsNotStored(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, err := f.WritePolicy(f.Ctx, kit.OtherOperator, "ann", picket.PolicyWrite{Body: "---\nlease: 5m\n---\n"})
		kit.Refused(t, err, picket.CodePolicyInvalid)
		if err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("the refusal is %v", err)
		}
		if f.mustPolicy(t, "ann").Present {
			t.Error("an invalid policy was stored")
		}
	})
}

// The status says whether a policy allows wakes at an instant, why not, and when it does next.
func TestTheStatusOfAPolicy(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		status := func(name, at string) picket.PolicyStatus {
			t.Helper()
			var instant picket.Instant
			if at != "" {
				kit.OK(t, instant.UnmarshalJSON([]byte(`"`+at+`"`)))
			}
			s, err := f.PolicyStatus(f.Ctx, name, instant)
			kit.OK(t, err)
			return s
		}
		f.mustWritePolicy(t, "ann", "---\npreferences:\n  active_hours:\n"+
			"  - {timezone: Europe/Berlin, start: \"08:00\", end: \"20:00\"}\n---\nx\n")
		f.mustWritePolicy(t, "off", "---\nenabled: false\n---\n")
		f.mustWritePolicy(t, "empty", "")
		for _, c := range []struct {
			name, at string
			reason   picket.WakeReason
			next     string
		}{
			{"nobody", "", picket.WakeReasonNoPolicy, ""},
			{"off", "", picket.WakeReasonDisabled, ""},
			{"empty", "", picket.WakeReasonDisabled, ""},
			{"ann", "2026-07-01T05:59:59Z", picket.WakeReasonQuietWindow, "2026-07-01T06:00:00.000Z"},
			{"ann", "2026-07-01T06:00:00Z", "", ""},
			{"ann", "2026-12-01T06:00:00Z", picket.WakeReasonQuietWindow, "2026-12-01T07:00:00.000Z"},
		} {
			s := status(c.name, c.at)
			next := ""
			if s.NextAllowedAt != nil {
				next = s.NextAllowedAt.String()
			}
			if s.Reason != c.reason || s.Active != (c.reason == "") || next != c.next {
				t.Errorf("%s at %s: %q, next %q; want %q, %q", c.name, c.at, s.Reason, next, c.reason, c.next)
			}
		}
		if at := status("nobody", "").At; at.IsZero() {
			t.Error("the status does not say for when it is")
		}
	})
}
