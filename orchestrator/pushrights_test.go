package orchestrator_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Only the client of a task and operators see its configurations, and nobody sees their secrets.
func TestWhoSeesPushConfigurations(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.pushed(t)
		other := f.MustSubmit(t, picket.TaskSpec{Title: "of no client"})
		stranger, owner := kit.WithKey("key_b"), kit.WithKey("key_a")
		operator := picket.Caller{Actor: "key_op", Key: "key_op", Operator: true}
		for what, id := range map[string]string{"another client's task": task.TaskID,
			"a task of no client": other.TaskID, "no task": kit.NoTask} {
			who := stranger
			if id == other.TaskID {
				who = operator
			}
			_, err := f.PutPushConfig(f.Ctx, who, pushTo(id, "x"))
			_, listed := f.PushConfigs(f.Ctx, who, id)
			_, shown := f.PushConfig(f.Ctx, who, id, "c1")
			deleted := f.DeletePushConfig(f.Ctx, who, id, "c1")
			for _, err := range []error{err, listed, shown, deleted} {
				if !errors.Is(err, picket.CodeNotFound) {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		for _, who := range []picket.Caller{owner, operator} {
			list, err := f.PushConfigs(f.Ctx, who, task.TaskID)
			kit.OK(t, err)
			want := picket.PushConfig{TaskID: task.TaskID, ID: "c1", URL: "https://hooks.test/path-c1",
				Scheme: "Bearer"}
			if len(list) != 1 || list[0] != want {
				t.Errorf("%+v, want %+v", list, want)
			}
			one, err := f.PushConfig(f.Ctx, who, task.TaskID, "c1")
			kit.OK(t, err)
			if one != want {
				t.Errorf("%+v, want %+v", one, want)
			}
		}
		dump, err := kit.Dump(f.Ctx, f.Raw, nil)
		kit.OK(t, err)
		for _, secret := range []string{"path-c1", "tok-c1", "cred-c1"} {
			if strings.Contains(dump, secret) {
				t.Errorf("the store shows %s", secret)
			}
		}
	})
}

// A task has five configurations at most, and a client a thousand. One that replaces another does not count.
func TestPushConfigurationsAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.pushed(t)
		for i := range picket.MaxTaskPushes - 1 {
			f.putPush(t, pushTo(task.TaskID, fmt.Sprint("more-", i)))
		}
		_, err := f.PutPushConfig(f.Ctx, kit.WithKey("key_a"), pushTo(task.TaskID, "x"))
		kit.Refused(t, err, picket.CodeQuota)
		f.putPush(t, pushTo(task.TaskID, "c1"))
		kit.OK(t, f.DeletePushConfig(f.Ctx, kit.WithKey("key_a"), task.TaskID, "c1"))
		kit.OK(t, f.DeletePushConfig(f.Ctx, kit.WithKey("key_a"), task.TaskID, "c1"))
		for i := range picket.MaxClientPushes {
			kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:client-pushes:key_a", kit.ZMember(1, fmt.Sprint("x", i))).Err())
		}
		_, err = f.PutPushConfig(f.Ctx, kit.WithKey("key_a"), pushTo(task.TaskID, "x"))
		kit.Refused(t, err, picket.CodeQuota)
		spec := clientTask("builder", "c1")
		c := pushTo("", "c1")
		spec.Client.Push = &c
		_, err = f.Submit(f.Ctx, kit.WithKey("key_a"), spec)
		kit.Refused(t, err, picket.CodeQuota)
		list, total := f.clientTasks(t, picket.ClientTaskQuery{Client: "key_a"})
		if total != 1 {
			t.Errorf("a refused task is stored: %v", list)
		}
	})
}

// Nothing that a client sends gets a line into a header, and each bound has an error that repeats none of it.
func TestHostilePushConfigurations(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.submitAs(t, "key_a", clientTask("builder", "c1"))
		for what, change := range map[string]func(c *picket.PushConfig){
			"no URL":               func(c *picket.PushConfig) { c.URL = "" },
			"a URL with a line":    func(c *picket.PushConfig) { c.URL = "https://hooks.test/\r\nX-Evil: s3cr3t" },
			"a file":               func(c *picket.PushConfig) { c.URL = "file:///s3cr3t" },
			"gopher":               func(c *picket.PushConfig) { c.URL = "gopher://hooks.test/s3cr3t" },
			"no host":              func(c *picket.PushConfig) { c.URL = "https:///s3cr3t" },
			"a password":           func(c *picket.PushConfig) { c.URL = "https://s3cr3t:s3cr3t@hooks.test/" },
			"a fragment":           func(c *picket.PushConfig) { c.URL = "https://hooks.test/#s3cr3t" },
			"a long URL":           func(c *picket.PushConfig) { c.URL += picket.Secret(strings.Repeat("s3cr3t", 400)) },
			"a token with a line":  func(c *picket.PushConfig) { c.Token = "s3cr3t\r\nX-Evil: 1" },
			"a token with a zero":  func(c *picket.PushConfig) { c.Token = "s3cr3t\x00" },
			"a token of umlauts":   func(c *picket.PushConfig) { c.Token = "s3cr3tä" },
			"a token and a blank":  func(c *picket.PushConfig) { c.Token = "s3cr3t " },
			"a long token":         func(c *picket.PushConfig) { c.Token = picket.Secret(strings.Repeat("s3cr3t", 200)) },
			"a scheme with a line": func(c *picket.PushConfig) { c.Scheme = "Bearer\nX: s3cr3t" },
			"a scheme of two":      func(c *picket.PushConfig) { c.Scheme = "Bearer s3cr3t" },
			"no scheme":            func(c *picket.PushConfig) { c.Scheme = "" },
			"long credentials": func(c *picket.PushConfig) {
				c.Credentials = picket.Secret(strings.Repeat("s3cr3t", 800))
			},
			"credentials with a line": func(c *picket.PushConfig) { c.Credentials = "s3cr3t\nX: 1" },
			"an id with a blank":      func(c *picket.PushConfig) { c.ID = "s3cr3t b" },
			"an id with a slash":      func(c *picket.PushConfig) { c.ID = "s3cr3t/b" },
			"an id of dots":           func(c *picket.PushConfig) { c.ID = ".." },
			"a long id":               func(c *picket.PushConfig) { c.ID = strings.Repeat("s3cr3t", 30) },
		} {
			c := pushTo(task.TaskID, "c1")
			change(&c)
			_, err := f.PutPushConfig(f.Ctx, kit.WithKey("key_a"), c)
			kit.Refused(t, err, picket.CodeValidation)
			if err != nil && strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("%s: the error repeats it: %v", what, err)
			}
		}
		f.wantNoPush(t)
	})
}

// A client whose key is revoked or has expired is told nothing more, also by a deliverer that has a claim. Its task
// goes on, and its configurations are deleted.
func TestPushEndsWithTheKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for what, end := range map[string]func(id string){
			"revoked": func(id string) { f.MustRevokeKey(t, id, nil) },
			"expired": func(id string) { kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:key:"+id, "expires", 1).Err()) },
		} {
			id := f.MustCreateClientKey(t, "builder").KeyID
			task := f.submitAs(t, id, clientTask("builder", "c1"))
			for _, config := range []string{"c1", "c2"} {
				_, err := f.PutPushConfig(f.Ctx, kit.WithKey(id), pushTo(task.TaskID, config))
				kit.OK(t, err)
			}
			held := f.pushLease(t, "builder")
			_, err := f.EmitStatus(f.Ctx, held, "", picket.StatusMessage{Message: "half"})
			kit.OK(t, err)
			turn := f.claimPush(t, what+" one")
			end(id)
			f.mustStep(t, turn, 1, picket.PushTaken, picket.PushGivenUp)
			if got := f.claimPush(t, what+" two"); got.ID != "" {
				t.Errorf("%s: a client without a key is told %q", what, updates(got))
			}
			f.wantNoPush(t)
			if now, err := f.Task(f.Ctx, task.TaskID); err != nil || now.State.Terminal() {
				t.Errorf("%s: the task is %s, %v", what, now.State, err)
			}
			_, err = f.Cancel(f.Ctx, kit.Operator, task.TaskID, "test")
			kit.OK(t, err)
		}
	})
}
