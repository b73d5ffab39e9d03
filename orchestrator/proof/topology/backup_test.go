package topology

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The backup and the restore of the documents, step by step, under traffic:
// what the page says happens then, happens, with the witness kept and on a
// machine that has none.
func TestBackupAndRestore(t *testing.T) {
	for name, lost := range map[string]bool{"WitnessKept": false, "NewMachine": true} {
		t.Run(name, func(t *testing.T) {
			b := newBackupStory(t)
			b.before()
			b.backup()
			b.after()
			b.restore()
			if lost {
				b.witness = t.TempDir()
			}
			b.open()
			b.then()
		})
	}
}

type backupStory struct {
	*testing.T
	*kit.Fixture
	node    *rig.Node
	witness string
	data    string
	copy    string

	kept      picket.Lease
	left      picket.Lease // leased before the backup: one holder goes on, the other never returns
	first     picket.Lease
	second    picket.Lease // of one task, before the backup and after it
	gone      picket.Lease // of a task that the backup does not know
	early     string
	late      string // keys made before the backup and after it
	highest   int64
	last      int64          // of all tokens and sequence numbers before the restore
	audited   []picket.Event // the audit log before the restore
	submitted int
	copied    int // tasks of the traffic: all, and those the backup must know
}

func newBackupStory(t *testing.T) *backupStory {
	// Small enough that Redis would rewrite its file during the backup.
	args := append([]string{"--auto-aof-rewrite-min-size", "16kb"}, kit.DurableSettings...)
	b := &backupStory{
		T:       t,
		node:    rig.StartNode(t, args...),
		witness: t.TempDir(),
		data:    t.TempDir(),
		copy:    filepath.Join(t.TempDir(), "backup"),
	}
	for _, name := range []string{"secret.key", "admin.key"} {
		kit.OK(t, os.WriteFile(filepath.Join(b.data, name), []byte(name), 0o600))
	}
	b.open()
	return b
}

func (b *backupStory) open() {
	b.Helper()
	where := b.node.Store()
	store, err := orchestrator.Open(b.Context(),
		orchestrator.Config{Redis: where.Redis, Sealer: rig.Sealer(), Witness: b.witness, Found: true,
			Log: slog.New(slog.DiscardHandler)})
	kit.OK(b.T, err)
	b.Fixture = &kit.Fixture{
		Engine: store.Engine("default"),
		Store:  store,
		Sealer: rig.Sealer(),
		Ctx:    b.Context(),
		Raw:    rig.Hashes(redis.NewUniversalClient(&where.Redis)),
	}
	b.Cleanup(func() { _ = store.Close() })
	b.Cleanup(func() { _ = b.Raw.Close() })
}

// take leases a new task of a role and confirms the lease.
func (b *backupStory) take(role string) picket.Lease {
	b.Helper()
	b.MustSubmit(b.T, picket.TaskSpec{Role: role})
	l := b.AcquireOne(b.T, picket.AcquireRequest{AgentID: role, Role: role})
	_, err := b.Renew(b.Ctx, b.OpenLease(b.T, l))
	kit.OK(b.T, err)
	b.highest = max(b.highest, l.FencingToken)
	return l
}

func (b *backupStory) makeKey(name string) string {
	b.Helper()
	k, err := b.CreateKey(b.Ctx, kit.Operator, picket.KeyRequest{Name: name, Scopes: []picket.Scope{picket.ScopeAgent}})
	kit.OK(b.T, err)
	return k.KeyID
}

func (b *backupStory) before() {
	b.kept, b.left, b.first = b.take("kept"), b.take("left"), b.take("passed-on")
	b.early = b.makeKey("early")
	_, err := b.Report(b.Ctx, b.OpenLease(b.T, b.kept), "", picket.Progress{Summary: "half way"})
	kit.OK(b.T, err)
}

// backup runs the documented lines while tasks come and go.
func (b *backupStory) backup() {
	b.Helper()
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			task, err := b.Submit(context.WithoutCancel(b.Ctx), kit.Operator,
				picket.TaskSpec{Title: strings.Repeat("traffic ", 10), Role: "traffic"})
			if err != nil {
				stopped <- fmt.Errorf("task %d of the traffic: %w", b.submitted, err)
				return
			}
			b.submitted++
			if b.submitted%2 == 0 {
				if _, err = b.Cancel(context.WithoutCancel(b.Ctx), kit.Operator, task.TaskID, "over"); err != nil {
					stopped <- err
					return
				}
			}
		}
	}()
	for size := int64(0); size < 200; { // there is traffic when the copy begins
		n, err := b.Raw.ZCard(b.Ctx, "pk:{default}:tasks").Result()
		kit.OK(b.T, err)
		size = n
	}
	b.copied = 200
	b.documented("sh backup", "TO="+b.copy, "PATH="+b.slowCopy()+":"+os.Getenv("PATH"))
	close(stop)
	kit.OK(b.T, <-stopped)
	if p, err := b.Raw.ConfigGet(b.Ctx, "auto-aof-rewrite-percentage").Result(); err != nil ||
		p["auto-aof-rewrite-percentage"] != "100" {
		b.Errorf("rewriting is left at %v, %v", p, err)
	}
}

// slowCopy is a cp that takes the manifest first and the files it names when
// twice as much has been written, time enough for Redis to replace them.
func (b *backupStory) slowCopy() string {
	b.Helper()
	real, err := exec.LookPath("cp")
	kit.OK(b.T, err)
	dir := b.TempDir()
	script := `#!/bin/sh
size() { redis-cli -u "$ADMIN" INFO persistence | sed -n 's/^aof_current_size:\([0-9]*\).*/\1/p'; }
case "$2" in */appendonlydir)
	mkdir "$3/appendonlydir"
	` + real + ` -a "$2"/*.manifest "$3/appendonlydir/"
	was=$(size)
	while [ "$(size)" -lt $((was * 2)) ]; do sleep 0.05; done
	sleep 0.5
	exec ` + real + ` -a $(sed -n "s|^file \([^ ]*\) .*|$2/\1|p" "$3"/appendonlydir/*.manifest) "$3/appendonlydir/"
esac
exec ` + real + ` "$@"
`
	kit.OK(b.T, os.WriteFile(filepath.Join(dir, "cp"), []byte(script), 0o755))
	return dir
}

// documented runs a block of the page.
func (b *backupStory) documented(name string, env ...string) {
	b.Helper()
	cmd := exec.CommandContext(b.Ctx, "bash", "-c", docBlock(b.T, name))
	cmd.Env = append(os.Environ(),
		append(env, "ADMIN=redis://"+b.node.Addr, "REDIS_DIR="+b.node.Dir, "DATA="+b.data)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("run the block %q: %v\n%s", name, err, out)
	}
}

// after is what the backup does not know.
func (b *backupStory) after() {
	b.gone = b.take("gone")
	b.late = b.makeKey("late")
	_, err := b.RevokeKey(b.Ctx, kit.Operator, b.early)
	kit.OK(b.T, err)
	_, err = b.Expire(b.Ctx, kit.Operator, b.first.TaskID, "hand over")
	kit.OK(b.T, err)
	b.second = b.AcquireOne(b.T, picket.AcquireRequest{AgentID: "b", Role: "passed-on"})
	b.highest = max(b.highest, b.second.FencingToken)
	b.last, err = b.LastSeq(b.Ctx)
	kit.OK(b.T, err)
	b.audited = b.AuditLog(b.T)
}

func (b *backupStory) restore() {
	b.Helper()
	kit.OK(b.T, errors.Join(b.Raw.Close(), b.Store.Close()))
	b.node.Kill()
	for _, name := range []string{"secret.key", "admin.key"} {
		kit.OK(b.T, os.Remove(filepath.Join(b.data, name)))
	}
	b.documented("sh restore", "FROM="+b.copy)
	for _, name := range []string{"secret.key", "admin.key"} {
		if text, err := os.ReadFile(filepath.Join(b.data, name)); err != nil || string(text) != name {
			b.Errorf("%s came back as %q, %v", name, text, err)
		}
	}
	b.node.Start()
}

// then is the list at the end of the page.
func (b *backupStory) then() {
	b.Helper()
	kit.CheckInvariants(b.T, b.Engine)
	tasks, err := b.Raw.ZCard(b.Ctx, "pk:{default}:tasks").Result()
	kit.OK(b.T, err)
	if tasks < int64(b.copied) {
		b.Errorf("%d tasks are back, %d were there when the backup began", tasks, b.copied)
	}
	b.Logf("%d of %d tasks of the traffic came back", tasks-3, b.submitted)

	// A holder that the backup knows goes on under a higher token.
	held := b.OpenLease(b.T, b.kept)
	rep, err := b.Report(b.Ctx, held, "", picket.Progress{Summary: "nearly there"})
	kit.OK(b.T, err)
	r, err := b.Renew(b.Ctx, held)
	kit.OK(b.T, err)
	if rep.Seq != 2 || r.FencingToken <= b.highest {
		b.Errorf("report %d, token %d; want 2 and more than %d", rep.Seq, r.FencingToken, b.highest)
	}
	_, err = b.Complete(b.Ctx, held, picket.Completion{Output: picket.RawJSON(`1`)})
	kit.OK(b.T, err)
	// One that it does not know is stopped.
	_, err = b.Renew(b.Ctx, b.OpenLease(b.T, b.gone))
	kit.Refused(b.T, err, picket.CodeLeaseExpired)
	_, err = b.Task(b.Ctx, b.gone.TaskID)
	kit.Refused(b.T, err, picket.CodeNotFound)
	_, err = b.Renew(b.Ctx, b.OpenLease(b.T, b.second))
	kit.Refused(b.T, err, picket.CodeLeaseExpired)
	r, err = b.Renew(b.Ctx, b.OpenLease(b.T, b.first))
	kit.OK(b.T, err)
	if r.FencingToken <= b.highest {
		b.Errorf("the task goes back to its first holder with token %d, %d was before", r.FencingToken, b.highest)
	}
	// One that does not come back ends, and its task is queued again.
	b.RunReaperFor(b.T, 31*time.Second)
	_, err = b.RunChores(b.Ctx, 100)
	kit.OK(b.T, err)
	task := b.WantState(b.T, b.left.TaskID, picket.TaskQueued)
	if exit := task.Runs[0].Exit; exit == nil || exit.Class != picket.ExitStoreAdopted || task.Failures != 0 {
		b.Errorf("the task that nobody reclaimed: %d failures, %+v", task.Failures, exit)
	}
	if again := b.AcquireOne(b.T,
		picket.AcquireRequest{AgentID: "left", Role: "left"}); again.FencingToken <= b.highest {
		b.Errorf("token %d is granted, %d was before", again.FencingToken, b.highest)
	}
	b.checkEvents()
	b.checkAudit()
	b.checkKeys()
	kit.CheckInvariants(b.T, b.Engine)
}

func (b *backupStory) checkEvents() {
	b.Helper()
	page, err := b.Events(b.Ctx, picket.EventQuery{After: b.last})
	kit.OK(b.T, err)
	if len(page.Events) == 0 || page.Events[0].Type != picket.EventStoreAdopted || page.Events[0].Seq <= b.last {
		b.Errorf("a reader at %d goes on with %+v", b.last, page.Events[:min(1, len(page.Events))])
	}
}

// checkAudit: the audit log is that of the backup, followed by the adoption. What people did after
// the backup is gone from it.
func (b *backupStory) checkAudit() {
	b.Helper()
	if diff := kit.AuditDiffers(b.Ctx, b.Raw); diff != "" {
		b.Error(diff)
	}
	now := b.AuditLog(b.T)
	n := slices.IndexFunc(now,
		func(ev picket.Event) bool { return ev.Type == picket.EventStoreAdopted && ev.Seq > b.last })
	if n < 0 || n > len(b.audited) || !reflect.DeepEqual(now[:n], b.audited[:n]) {
		b.Fatalf("of %d events before the restore, the audit log has %d before the adoption", len(b.audited), n)
	}
	told := func(key string) func(picket.Event) bool {
		return func(ev picket.Event) bool { return strings.Contains(string(ev.Data), key) }
	}
	if early := slices.DeleteFunc(slices.Clone(now),
		func(ev picket.Event) bool { return !told(b.early)(ev) }); len(early) != 1 {
		b.Errorf("of the key that was made before the backup and revoked after it, the audit log has %+v", early)
	}
	if slices.ContainsFunc(now, told(b.late)) {
		b.Error("the audit log knows the key that was made after the backup")
	}
}

func (b *backupStory) checkKeys() {
	b.Helper()
	early, err := b.Key(b.Ctx, b.early)
	kit.OK(b.T, err)
	if !early.RevokedAt.IsZero() {
		b.Error("the key that was revoked after the backup is still revoked: the page says otherwise")
	}
	_, err = b.Key(b.Ctx, b.late)
	kit.Refused(b.T, err, picket.CodeNotFound)
}
