package orchestrator_test

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// listPolicies reads all pages of a limit, as "name state".
func (f *fixture) listPolicies(t *testing.T, limit int) (list []string, pages int) {
	t.Helper()
	for q := (picket.PolicyQuery{Limit: limit}); ; pages++ {
		page, err := f.Policies(f.Ctx, q)
		kit.OK(t, err)
		for _, p := range page.Policies {
			state := "none"
			switch {
			case p.Present && !p.Valid:
				state = "invalid"
			case p.Enabled:
				state = "enabled " + p.Summary
			case p.Present:
				state = "disabled"
			}
			if p.File != nil {
				state += " " + p.File.State
			}
			list = append(list, p.AgentName+" "+strings.TrimSpace(state))
		}
		if q.After = page.Next; q.After == "" {
			return list, pages + 1
		}
	}
}

// Every name that has or had a policy is on one page, and so is one that has only a file.
func TestPoliciesAreListed(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		d := openPolicyDir(t, f, t.TempDir(), "a")
		if list, pages := f.listPolicies(t, 50); len(list) != 0 || pages != 1 {
			t.Errorf("without policies: %q on %d pages", list, pages)
		}
		f.mustWritePolicy(t, "cid", "---\nsummary: Reviews.\n---\nx\n")
		f.mustWritePolicy(t, "ann", "one\n")
		f.mustWritePolicy(t, "off", "")
		f.mustWritePolicy(t, "gone", "x\n")
		_, err := f.DeletePolicy(f.Ctx, kit.OtherOperator, "gone", expecting(f.mustPolicy(t, "gone").Digest))
		kit.OK(t, err)
		d.pass(t)
		d.edit(t, "ann", "---\nsummary: edited\n---\nx\n")
		d.edit(t, "ben", "---\nmodel: large\n---\n")
		d.pass(t)
		want := "ann enabled edited edited, ben invalid edited, cid enabled Reviews., gone none, off disabled"
		for limit, pages := range map[int]int{1: 5, 2: 3, 50: 1} {
			list, n := f.listPolicies(t, limit)
			if got := strings.Join(list, ", "); got != want || n != pages {
				t.Errorf("pages of %d: %s on %d pages; want %s", limit, got, n, want)
			}
		}
		_, err = f.Policies(f.Ctx, picket.PolicyQuery{After: "no name!"})
		kit.Refused(t, err, picket.CodeValidation)
	})
}

// A page of policies has no more bytes than a reply takes, and the pages have every policy.
func TestPagesOfPoliciesAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		large := strings.Repeat("x", 2<<20) // more than a policy has, so that few of them fill a reply
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			p := f.mustWritePolicy(t, name, "x\n")
			kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:policy-revision:"+p.RevisionID, "body", large).Err())
		}
		page, err := f.Policies(f.Ctx, picket.PolicyQuery{})
		kit.OK(t, err)
		if n := len(page.Policies); n != 2 || page.Next != "b" {
			t.Errorf("a page has %d policies, next %q", n, page.Next)
		}
		if list, _ := f.listPolicies(t, 0); len(list) != 5 {
			t.Errorf("the pages have %q", list)
		}
	})
}

// The versions of a policy are what the store has and what the file has. The text of an invalid file is not
// shown.
func TestTheVersionsOfAPolicy(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		d := openPolicyDir(t, f, t.TempDir(), "a")
		versions := func() picket.PolicyVersions {
			t.Helper()
			v, err := f.PolicyVersions(f.Ctx, "ann")
			kit.OK(t, err)
			return v
		}
		if v := versions(); v.Now.Present || v.Stored.Present || v.InFile.Present {
			t.Errorf("a name without a policy has %+v", v)
		}
		f.mustWritePolicy(t, "ann", "one\n")
		d.pass(t)
		if v := versions(); v.Now.Body != "one\n" || v.Stored.Digest != v.Now.Digest ||
			v.InFile.Digest != v.Now.Digest {
			t.Errorf("without a difference: %+v", v)
		}
		other := f.withWake(t, func(*heartbeat.Settings) {})
		other.mustWritePolicy(t, "ann", "two\n")
		d.edit(t, "ann", "mine\n")
		v := versions()
		if v.Now.File == nil || v.Now.File.State != picket.PolicyFileConflict || v.Now.File.Digest != v.InFile.Digest ||
			v.Stored.Body != "two\n" || v.InFile.Body != "mine\n" || !v.InFile.Valid {
			t.Errorf("in a conflict: %+v", v)
		}
		d.edit(t, "ann", "---\nmodel: large\n---\nmine\n")
		v = versions()
		if v.InFile.Body != "" || v.InFile.Valid || len(v.InFile.Diagnostics) == 0 || v.Stored.Body != "two\n" {
			t.Errorf("with an invalid file: %+v", v)
		}
	})
}
