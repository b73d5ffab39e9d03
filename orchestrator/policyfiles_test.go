package orchestrator_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/mirror"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// policyDir is a process with a directory of policy files.
type policyDir struct {
	*fixture
	dir   string
	files *mirror.Directory
}

// openPolicyDir gives the process of f a directory.
func openPolicyDir(t *testing.T, f *fixture, dir, holder string) *policyDir {
	t.Helper()
	files, err := mirror.New(mirror.Config{Dir: dir, Namespace: "default", Holder: holder, Store: f.PolicyStore(),
		Settings: heartbeat.Defaults()})
	kit.OK(t, err)
	f.RefreshPolicies("", files.Refresh)
	return &policyDir{f, dir, files}
}

func (d *policyDir) pass(t *testing.T) {
	t.Helper()
	kit.OK(t, d.files.Pass(d.Ctx))
}

func (d *policyDir) path(name string) string { return filepath.Join(d.dir, name, "HEARTBEAT.md") }

func (d *policyDir) edit(t *testing.T, name, text string) {
	t.Helper()
	kit.OK(t, errors.Join(os.MkdirAll(filepath.Join(d.dir, name), 0o700),
		os.WriteFile(d.path(name), []byte(text), 0o600)))
}

func (d *policyDir) wantFile(t *testing.T, name, text string) {
	t.Helper()
	if got, err := os.ReadFile(d.path(name)); err != nil || string(got) != text {
		t.Errorf("the file is %q, %v; want %q", got, err, text)
	}
}

// status is the reason and the state of the file.
func (f *fixture) status(t *testing.T, name string) string {
	t.Helper()
	s, err := f.PolicyStatus(f.Ctx, name, 0)
	kit.OK(t, err)
	if s.File == nil {
		return string(s.Reason) + ":"
	}
	if s.File.Path != name+"/HEARTBEAT.md" {
		t.Errorf("the path is %s", s.File.Path)
	}
	return string(s.Reason) + ":" + s.File.State
}

func (f *fixture) wantStatus(t *testing.T, want string) {
	t.Helper()
	if got := f.status(t, "ann"); got != want {
		t.Errorf("the status is %q, want %q", got, want)
	}
}

// An edited file is the policy at once, for every server, until somebody writes with its digest.
func TestAnEditedPolicyFileCounts(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		d := openPolicyDir(t, f, t.TempDir(), "a")
		other := f.withWake(t, func(*heartbeat.Settings) {})
		first := f.mustWritePolicy(t, "ann", "one\n")
		d.pass(t)
		d.wantFile(t, "ann", "one\n")
		f.wantStatus(t, ":")
		d.edit(t, "ann", "---\nsummary: mine\n---\n")
		p := f.mustPolicy(t, "ann")
		if p.Summary != "mine" || !p.Valid || p.File.State != picket.PolicyFileEdited || p.File.Digest != p.Digest ||
			p.RevisionID != "" || p.WrittenAt != nil {
			t.Errorf("the policy is %+v", p)
		}
		if got := other.mustPolicy(t, "ann"); got.Digest != p.Digest {
			t.Errorf("another server has %+v", got)
		}
		_, err := other.WritePolicy(f.Ctx, kit.OtherOperator, "ann",
			picket.PolicyWrite{Body: "two\n", PolicyCondition: expecting(first.Digest)})
		kit.Refused(t, err, picket.CodePolicyConflict)
		_, err = other.WritePolicy(f.Ctx, kit.OtherOperator, "ann",
			picket.PolicyWrite{Body: "two\n", PolicyCondition: expecting(p.Digest)})
		kit.OK(t, err)
		f.wantStatus(t, ":") // before the file is written
		d.pass(t)
		f.wantStatus(t, ":")
		d.wantFile(t, "ann", "two\n")
	})
}

// An invalid file turns the policy off, and its text is in no answer. Its raw digest replaces it.
func TestAnInvalidPolicyFile(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		d := openPolicyDir(t, f, t.TempDir(), "a")
		f.mustWritePolicy(t, "ann", "one\n")
		d.pass(t)
		const text = "Use pkl_default_aaaaaaaaaaaaaaaaaaaaaaaa\n"
		d.edit(t, "ann", text)
		f.wantStatus(t, "heartbeat_invalid:edited")
		p := f.mustPolicy(t, "ann")
		if p.Valid || p.Body != "" || p.Digest != heartbeat.RawDigest([]byte(text)) || len(p.Diagnostics) == 0 {
			t.Errorf("the policy is %+v", p)
		}
		kit.Refused(t, orchestrator.PolicyError(p), picket.CodePolicyInvalid)
		stored := f.Raw.HGetAll(f.Ctx, "pk:{default}:policy-files").Val()
		if len(stored) != 1 || strings.Contains(stored["ann"], "pkl_") {
			t.Errorf("the store has %q", stored)
		}
		f.mustWritePolicy(t, "ann", "two\n")
		d.pass(t)
		d.wantFile(t, "ann", "two\n")
	})
}

// A file that is gone leaves no policy, and the store keeps what it had.
func TestARemovedPolicyFile(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		d := openPolicyDir(t, f, t.TempDir(), "a")
		first := f.mustWritePolicy(t, "ann", "one\n")
		d.pass(t)
		kit.OK(t, os.Remove(d.path("ann")))
		f.wantStatus(t, "heartbeat_no_policy:removed")
		_, err := f.RollbackPolicy(f.Ctx, kit.OtherOperator, "ann", picket.PolicyRollback{RevisionID: first.RevisionID})
		kit.OK(t, err)
		d.pass(t)
		d.wantFile(t, "ann", "one\n")
		kit.OK(t, os.Remove(d.path("ann")))
		d.pass(t)
		_, err = f.DeletePolicy(f.Ctx, kit.OtherOperator, "ann", expecting(""))
		kit.OK(t, err)
		d.pass(t)
		f.wantStatus(t, "heartbeat_no_policy:")
	})
}

// If file and store were both changed, neither counts. A write with the digest of either resolves that.
func TestAPolicyConflictIsResolvedByEitherDigest(t *testing.T) {
	for _, either := range []string{"store", "file"} {
		onBothStores(t, func(t *testing.T, f *fixture) {
			d := openPolicyDir(t, f, t.TempDir(), "a")
			f.mustWritePolicy(t, "ann", "one\n")
			d.pass(t)
			other := f.withWake(t, func(*heartbeat.Settings) {})
			stored := other.mustWritePolicy(t, "ann", "two\n")
			d.edit(t, "ann", "mine\n")
			f.wantStatus(t, "heartbeat_conflict:conflict")
			d.wantFile(t, "ann", "mine\n")
			p := f.mustPolicy(t, "ann")
			kit.Refused(t, orchestrator.PolicyError(p), picket.CodePolicyConflict)
			if p.Digest != stored.Digest || p.File.Digest == "" || p.File.Digest == p.Digest || p.Valid {
				t.Errorf("the policy is %+v", p)
			}
			write := picket.PolicyWrite{Body: "three\n"}
			_, err := f.WritePolicy(f.Ctx, kit.OtherOperator, "ann", write)
			kit.Refused(t, err, picket.CodePolicyConflict)
			if write.ExpectedDigest = p.Digest; either == "file" {
				write.ExpectedDigest = p.File.Digest
			}
			_, err = f.WritePolicy(f.Ctx, kit.OtherOperator, "ann", write)
			kit.OK(t, err)
			f.wantStatus(t, ":")
			d.pass(t)
			d.wantFile(t, "ann", "three\n")
		})
	}
}

// A change of the store that the holder of the directory has not seen yet makes a conflict at once.
func TestAPolicyConflictIsSeenBeforeTheNextPass(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		d := openPolicyDir(t, f, t.TempDir(), "a")
		f.mustWritePolicy(t, "ann", "one\n")
		d.pass(t)
		d.edit(t, "ann", "mine\n")
		d.pass(t)
		f.RefreshPolicies("", nil)
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:policy-lock", "until", 0).Err()) // the holder is away
		f.mustWritePolicy(t, "ann", "two\n")
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:policy-lock", "until", int64(1)<<50).Err())
		f.wantStatus(t, "heartbeat_conflict:conflict")
	})
}

// A file without a policy in the store counts, and a deletion removes it.
func TestADirectPolicyFile(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		d := openPolicyDir(t, f, t.TempDir(), "a")
		d.edit(t, "ann", "mine\n")
		d.pass(t)
		f.wantStatus(t, ":edited")
		_, err := f.DeletePolicy(f.Ctx, kit.OtherOperator, "ann", expecting(f.mustPolicy(t, "ann").Digest))
		kit.OK(t, err)
		d.pass(t)
		f.wantStatus(t, "heartbeat_no_policy:")
		if _, err := os.Stat(d.path("ann")); !os.IsNotExist(err) {
			t.Errorf("the file of a deleted policy: %v", err)
		}
	})
}

// A link in the place of a file turns the policy off.
func TestAPolicyFileThatIsALink(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		d := openPolicyDir(t, f, t.TempDir(), "a")
		f.mustWritePolicy(t, "ann", "one\n")
		d.pass(t)
		kit.OK(t, errors.Join(os.Remove(d.path("ann")), os.Symlink("/etc/passwd", d.path("ann"))))
		f.wantStatus(t, "heartbeat_invalid:refused")
		p := f.mustPolicy(t, "ann")
		if p.Diagnostics[0].Code != string(heartbeat.CodePathEscape) {
			t.Errorf("the diagnostics are %+v", p.Diagnostics)
		}
	})
}

// Of two servers one holds the directory. If it is away, its files do not count, and the other one takes
// the lock when it has run out. A process that has lost the lock publishes nothing.
func TestOneServerHoldsThePolicyFiles(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		first := openPolicyDir(t, f, t.TempDir(), "a")
		second := openPolicyDir(t, f.withWake(t, func(*heartbeat.Settings) {}), t.TempDir(), "b")
		f.mustWritePolicy(t, "ann", "one\n")
		first.pass(t)
		second.pass(t)
		if _, err := os.Stat(second.path("ann")); !os.IsNotExist(err) {
			t.Errorf("the other server wrote its file: %v", err)
		}
		first.edit(t, "ann", "mine\n")
		second.wantStatus(t, ":")
		first.pass(t)
		second.wantStatus(t, ":edited")
		f.JumpStoreTime(t, mirror.Lease-time.Second)
		first.pass(t) // renews
		f.JumpStoreTime(t, mirror.Lease-time.Second)
		second.wantStatus(t, ":edited")
		f.JumpStoreTime(t, 2*time.Second)
		second.wantStatus(t, ":") // the holder is away
		second.pass(t)
		second.wantFile(t, "ann", "one\n")
		first.pass(t)
		first.wantStatus(t, ":")
		gone := mirror.File{Name: "ann", State: mirror.StateRemoved, Digest: mirror.Absent}
		err := f.PolicyStore().Publish(f.Ctx, "a", []mirror.File{gone}, nil)
		kit.Refused(t, err, picket.CodeStateConflict)
		kit.OK(t, f.PolicyStore().Release(f.Ctx, "a"))
		second.edit(t, "ann", "other\n")
		second.wantStatus(t, ":edited")
		kit.OK(t, second.PolicyStore().Release(f.Ctx, "b"))
		second.wantStatus(t, ":")
		if kept := f.Raw.HGetAll(f.Ctx, "pk:{default}:policy-files").Val(); len(kept) != 0 {
			t.Errorf("files of a directory that no server has are kept: %q", kept)
		}
		first.pass(t)
		f.wantStatus(t, ":edited")
	})
}
